import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads topics from their first message to their last. Arguments: topics. Prints "sum TOPIC COUNT SHA256" of each:
 *  of queue, offset and body, in the order of queues and offsets. What is refused it asks for again. */
public class Sums {
  private static final int TRIES = 60;

  public static void main(String[] topics) {
    try {
      read(topics);
      System.exit(0);
    } catch (Exception error) {
      // Threads of the client would keep the process.
      error.printStackTrace();
      System.exit(1);
    }
  }

  private static void read(String[] topics) throws Exception {
    DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("sums");
    consumer.setNamesrvAddr(System.getenv("NAMESRV"));
    consumer.start();
    for (String topic : topics) {
      MessageDigest sum = MessageDigest.getInstance("SHA-256");
      long count = 0;
      for (MessageQueue queue : new TreeSet<>(asked(() -> consumer.fetchSubscribeMessageQueues(topic)))) {
        long offset = asked(() -> consumer.minOffset(queue)), end = asked(() -> consumer.maxOffset(queue));
        while (offset < end) {
          long next = offset;
          PullResult result = asked(() -> consumer.pull(queue, "*", next, 32, 30_000));
          if (result.getPullStatus() == PullStatus.FOUND) {
            for (MessageExt one : result.getMsgFoundList()) {
              String place = queue.getQueueId() + " " + one.getQueueOffset() + " ";
              sum.update(place.getBytes(StandardCharsets.US_ASCII));
              sum.update(one.getBody());
              count++;
            }
          }
          if (result.getNextBeginOffset() <= offset) throw new IllegalStateException(topic + " " + result);
          offset = result.getNextBeginOffset();
        }
      }
      StringBuilder text = new StringBuilder();
      for (byte one : sum.digest()) text.append(String.format("%02x", one));
      System.out.println("sum " + topic + " " + count + " " + text);
    }
    consumer.shutdown();
  }

  private interface Question<T> {
    T ask() throws Exception;
  }

  private static <T> T asked(Question<T> question) throws Exception {
    for (int left = TRIES; ; left--) {
      try {
        return question.ask();
      } catch (Exception refused) {
        if (left == 0) throw refused;
        System.out.println("again " + refused.getMessage());
        Thread.sleep(1_000);
      }
    }
  }
}
