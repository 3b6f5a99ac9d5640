import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A producer with its defaults that sends without a pause until it is told to end, one after the other.
 *  NAMESRV names the name servers. Arguments: topic. Prints "runs" once some are stored, "over MS" for each
 *  time in which none was, for sends failed, and how many were stored and failed at its end. */
public class FailOver {
  public static void main(String[] args) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("fail-over");
    producer.setNamesrvAddr(System.getenv("NAMESRV"));
    producer.start();
    Thread reader = new Thread(() -> {
      try {
        System.in.read();
      } catch (java.io.IOException error) {
        // Whoever told it what to do has gone.
      }
    });
    reader.setDaemon(true);
    reader.start();
    byte[] body = new byte[100];
    int stored = 0;
    int failed = 0;
    int failedBefore = 0;
    long last = System.nanoTime();
    while (reader.isAlive()) {
      try {
        producer.send(new Message(args[0], body));
        long now = System.nanoTime();
        long over = (now - last) / 1_000_000;
        last = now;
        if (++stored == 100) {
          System.out.println("runs");
        } else if (stored > 100 && failed > failedBefore) {
          System.out.println("over " + over);
        }
        failedBefore = failed;
        Thread.sleep(5);
      } catch (InterruptedException error) {
        break;
      } catch (Exception error) {
        failed++;
        Thread.sleep(20);
      }
    }
    System.out.println("stored " + stored + " failed " + failed);
    System.exit(0);
  }
}
