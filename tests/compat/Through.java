import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

/** Producers, an ordered and a concurrent consumer that go on through whatever happens to the brokers.
 *  Arguments: topic, the prefix of the groups. The name servers are in NAMESRV. Says "runs" once
 *  everything has been acknowledged and consumed once, and sends until it reads a line; then it waits
 *  until both consumers have all that was acknowledged, and says what was lost, doubled and turned.
 *  Doubled is what stands in more places of its queue than sends without an acknowledgement explain, or
 *  not where its acknowledgement said. */
public class Through {
  static final int KEYS = 4;
  static final long PATIENCE_NS = 120_000_000_000L;
  static final AtomicLongArray ACKED = new AtomicLongArray(KEYS);
  static final Reader ORDERED = new Reader(), CONCURRENT = new Reader();
  static final AtomicLong REFUSED = new AtomicLong();
  /** Of each message, by its body: sends without an acknowledgement, and where the acknowledged one is. */
  static final Map<String, Integer> UNKNOWN = new ConcurrentHashMap<>();
  static final Map<String, String> PLACED = new ConcurrentHashMap<>();
  static volatile boolean stops;

  /** Numbers of each key's messages as a consumer gets them. */
  static class Reader {
    final List<TreeSet<Long>> seen = new ArrayList<>();
    final Map<String, Set<String>> places = new HashMap<>();
    long again, turned;

    Reader() { for (int key = 0; key < KEYS; key++) seen.add(new TreeSet<>()); }

    synchronized void take(MessageExt one) {
      String body = new String(one.getBody(), StandardCharsets.UTF_8);
      String[] words = body.split(" ");
      TreeSet<Long> all = seen.get(Integer.parseInt(words[0]));
      long number = Long.parseLong(words[1]);
      // What comes again was there before; what comes first comes behind all that was there.
      if (all.contains(number)) again++;
      else if (number != (all.isEmpty() ? 0 : all.last() + 1)) turned++;
      all.add(number);
      places.computeIfAbsent(body, key -> new HashSet<>()).add(one.getQueueId() + " " + one.getQueueOffset());
    }

    synchronized long doubled() {
      long count = 0;
      for (Map.Entry<String, String> one : PLACED.entrySet()) {
        Set<String> found = places.getOrDefault(one.getKey(), Set.of());
        if (!found.contains(one.getValue())) count++;
        else if (found.size() > 1 + UNKNOWN.getOrDefault(one.getKey(), 0)) count++;
      }
      return count;
    }

    synchronized long missing() {
      long count = 0;
      for (int key = 0; key < KEYS; key++) {
        for (long number = 0; number < ACKED.get(key); number++) {
          if (!seen.get(key).contains(number)) count++;
        }
      }
      return count;
    }
  }

  static DefaultMQPushConsumer consumer(String group, String topic) throws Exception {
    DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
    made.setNamesrvAddr(System.getenv("NAMESRV"));
    made.setInstanceName("i" + System.nanoTime());
    made.setPollNameServerInterval(200);
    made.setHeartbeatBrokerInterval(1_000);
    made.setPersistConsumerOffsetInterval(1_000);
    made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    made.subscribe(topic, "*");
    return made;
  }

  public static void main(String[] args) throws Exception {
    System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
    String topic = args[0];
    DefaultMQProducer producer = new DefaultMQProducer(args[1] + "-producer");
    producer.setNamesrvAddr(System.getenv("NAMESRV"));
    producer.setSendMsgTimeout(1_000);
    producer.setRetryTimesWhenSendFailed(0);
    producer.setPollNameServerInterval(200);
    producer.setHeartbeatBrokerInterval(500);
    producer.start();
    List<Thread> senders = new ArrayList<>();
    AtomicLong last = new AtomicLong(System.nanoTime()), longest = new AtomicLong();
    for (int each = 0; each < KEYS; each++) {
      int key = each;
      Thread sender = new Thread(() -> send(producer, topic, key, last, longest));
      sender.start();
      senders.add(sender);
    }
    await("an acknowledgement of each", () -> {
      for (int key = 0; key < KEYS; key++) if (ACKED.get(key) == 0) return false;
      return true;
    });
    DefaultMQPushConsumer ordered = consumer(args[1] + "-ordered", topic);
    ordered.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
      messages.forEach(ORDERED::take);
      return ConsumeOrderlyStatus.SUCCESS;
    });
    ordered.start();
    DefaultMQPushConsumer concurrent = consumer(args[1] + "-concurrent", topic);
    concurrent.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      messages.forEach(CONCURRENT::take);
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    concurrent.start();
    await("consumption", () -> !ORDERED.seen.get(0).isEmpty() && !CONCURRENT.seen.get(0).isEmpty());
    longest.set(0);
    System.out.println("runs");
    Scanner orders = new Scanner(System.in);
    while (orders.hasNextLine()) {
      String order = orders.nextLine();
      if (order.equals("stop")) break;
      // What was acknowledged before is consumed, and something that was sent afterwards acknowledged.
      long[] before = new long[KEYS];
      for (int key = 0; key < KEYS; key++) before[key] = ACKED.get(key);
      await("an acknowledgement after " + order, () -> {
        for (int key = 0; key < KEYS; key++) if (ACKED.get(key) < before[key] + 2) return false;
        return true;
      });
      await("consumption after " + order, () -> {
        for (int key = 0; key < KEYS; key++) {
          if (!has(ORDERED, key, before[key]) || !has(CONCURRENT, key, before[key])) return false;
        }
        return true;
      });
      System.out.printf("through %s gap %.2f%n", order, longest.getAndSet(0) / 1e9);
    }
    stops = true;
    for (Thread sender : senders) sender.join();
    try {
      await("all", () -> ORDERED.missing() == 0 && CONCURRENT.missing() == 0);
    } catch (TimeoutException error) {
      System.out.println("late " + error);
    }
    long acked = 0;
    for (int key = 0; key < KEYS; key++) acked += ACKED.get(key);
    System.out.println("acked " + acked + " refused " + REFUSED);
    System.out.println("ordered missing " + ORDERED.missing() + " turned " + ORDERED.turned);
    System.out.println("concurrent missing " + CONCURRENT.missing());
    System.out.println("doubled " + ORDERED.doubled() + " " + CONCURRENT.doubled());
    System.out.println("again " + ORDERED.again + " " + CONCURRENT.again);
    ordered.shutdown();
    concurrent.shutdown();
    producer.shutdown();
    System.exit(0);
  }

  static boolean has(Reader reader, int key, long number) {
    synchronized (reader) { return reader.seen.get(key).contains(number); }
  }

  /** One after the other, each as often as needed until it is acknowledged. */
  static void send(DefaultMQProducer producer, String topic, int key, AtomicLong last, AtomicLong longest) {
    while (!stops) {
      long number = ACKED.get(key);
      byte[] body = (key + " " + number).getBytes(StandardCharsets.UTF_8);
      try {
        SendResult result = producer.send(new Message(topic, "TagA", body),
            (queues, one, given) -> queues.get((Integer) given % queues.size()), key);
        if (result.getSendStatus() != SendStatus.SEND_OK) throw new IllegalStateException("" + result);
        PLACED.put(key + " " + number, result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
        long now = System.nanoTime(), before = last.getAndSet(now);
        longest.accumulateAndGet(now - before, Math::max);
        ACKED.incrementAndGet(key);
        Thread.sleep(5);
      } catch (Exception error) {
        // It may be stored all the same: then it comes again, behind none that was sent later.
        UNKNOWN.merge(key + " " + number, 1, Integer::sum);
        if (REFUSED.incrementAndGet() % 50 == 1) System.out.println("refused " + error);
        try { Thread.sleep(20); } catch (InterruptedException ended) { return; }
      }
    }
  }

  static void await(String what, java.util.function.BooleanSupplier condition) throws Exception {
    long end = System.nanoTime() + PATIENCE_NS;
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > end) throw new TimeoutException(what);
      Thread.sleep(10);
    }
  }
}
