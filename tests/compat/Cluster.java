import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

/** A producer and an ordered consumer that go on whatever happens to the brokers. Arguments: its own name, a
 *  topic for keys, a topic for any queue. The name servers are in NAMESRV. It prints what it was told, a line
 *  each, as tests/process/cluster_history.py reads it. The line "stop" ends its producers, and the end of its
 *  input all of it. */
public class Cluster {
  static final int KEYS = 4, POLL_MS = 500, PAUSE_MS = 20;
  static final AtomicLong SENT = new AtomicLong();
  static volatile boolean stops;

  public static void main(String[] args) {
    try {
      run(args);
      System.exit(0);
    } catch (Exception error) {
      // The client's own threads would go on for ever.
      error.printStackTrace();
      System.exit(1);
    }
  }

  static void run(String[] args) throws Exception {
    System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
    String name = args[0], keyed = args[1], any = args[2];
    DefaultMQProducer producer = new DefaultMQProducer(name + "-producers");
    producer.setNamesrvAddr(System.getenv("NAMESRV"));
    producer.setPollNameServerInterval(POLL_MS);
    producer.setHeartbeatBrokerInterval(1_000);
    producer.start();
    DefaultMQPushConsumer consumer = null;
    while (consumer == null) consumer = started(name + "-readers", keyed, any);
    List<Thread> senders = new ArrayList<>();
    for (int each = 0; each < KEYS; each++) {
      int key = each;
      senders.add(new Thread(() -> send(producer, name, keyed, "" + key, key)));
    }
    senders.add(new Thread(() -> send(producer, name, any, "-", -1)));
    for (Thread sender : senders) sender.start();
    Scanner orders = new Scanner(System.in);
    while (orders.hasNextLine()) {
      if (!orders.nextLine().equals("stop")) continue;
      stops = true;
      for (Thread sender : senders) sender.join();
      say("stopped " + SENT);
    }
    consumer.shutdown();
    producer.shutdown();
  }

  /** A consumer; null: it could not begin, as one cannot whose first question is not answered in time. */
  static DefaultMQPushConsumer started(String group, String... topics) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
    consumer.setNamesrvAddr(System.getenv("NAMESRV"));
    consumer.setInstanceName("reader");
    consumer.setPollNameServerInterval(POLL_MS);
    consumer.setHeartbeatBrokerInterval(1_000);
    consumer.setPersistConsumerOffsetInterval(1_000);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    for (String topic : topics) consumer.subscribe(topic, "*");
    consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
      String broker = context.getMessageQueue().getBrokerName();
      for (MessageExt one : messages) {
        say("read " + one.getTopic() + " " + new String(one.getBody(), StandardCharsets.UTF_8) + " " + broker + " "
            + one.getQueueId() + " " + one.getQueueOffset() + " " + System.currentTimeMillis());
      }
      return ConsumeOrderlyStatus.SUCCESS;
    });
    try {
      consumer.start();
    } catch (Exception error) {
      say("again " + error);
      consumer.shutdown();
      return null;
    }
    return consumer;
  }

  static synchronized void say(String line) { System.out.println(line); }

  /** One after the other, each as often as needed until it is acknowledged. */
  static void send(DefaultMQProducer producer, String name, String topic, String key, int place) {
    try {
      for (long number = 0; !stops; number++) {
        SENT.incrementAndGet();
        byte[] body = (name + " " + key + " " + number).getBytes(StandardCharsets.UTF_8);
        while (!isStored(producer, new Message(topic, body), key, place)) Thread.sleep(PAUSE_MS);
        say("acked " + topic + " " + key + " " + number + " " + System.currentTimeMillis());
        Thread.sleep(PAUSE_MS);
      }
    } catch (InterruptedException ended) {
      say("FAILED interrupted");
    }
  }

  static boolean isStored(DefaultMQProducer producer, Message message, String key, int place)
      throws InterruptedException {
    try {
      SendResult result = place < 0 ? producer.send(message)
          : producer.send(message, (queues, one, given) -> queues.get((Integer) given % queues.size()), place);
      if (result.getSendStatus() == SendStatus.SEND_OK) return true;
      say("refused " + System.currentTimeMillis() + " " + key + " " + result.getSendStatus());
    } catch (InterruptedException ended) {
      throw ended;
    } catch (Exception error) {
      String why = String.valueOf(error).lines().findFirst().orElse("");
      say("refused " + System.currentTimeMillis() + " " + key + " " + why);
    }
    return false;
  }
}
