import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.BooleanSupplier;
import java.util.stream.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** Uses each feature of RocketMQ's clients once, and prints a line of facts about each: the same lines
 *  of every broker that does what RocketMQ does. The name servers are in NAMESRV; arguments are
 *  features to be left out, or with a plus the only ones. */
public class Features {
  static final String NAMESRV = System.getenv("NAMESRV");
  static final long PATIENCE_MS = 40_000;
  static final Map<String, Feature> ALL = new LinkedHashMap<>();
  static DefaultMQProducer producer;

  interface Feature { String facts() throws Exception; }

  public static void main(String[] args) throws Exception {
    System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
    producer = started(new DefaultMQProducer("features"));
    Sending.add();
    Consuming.add();
    Pulling.add();
    Ending.add();
    Set<String> left = new HashSet<>(List.of(args));
    List<String> only = left.stream().filter(one -> one.startsWith("+")).toList();
    for (Map.Entry<String, Feature> one : ALL.entrySet()) {
      if (only.isEmpty() ? left.contains(one.getKey()) : !only.contains("+" + one.getKey())) continue;
      long begin = System.nanoTime();
      String facts;
      try {
        facts = one.getValue().facts();
      } catch (MQBrokerException error) {
        facts = "code " + error.getResponseCode();
        System.out.println("why " + one.getKey() + ": " + error.getErrorMessage());
      } catch (Throwable error) {
        facts = "FAILED " + error;
        error.printStackTrace(System.out);
      }
      System.out.println("feature " + one.getKey() + ": " + facts);
      System.out.printf("took %s %.1f s%n", one.getKey(), (System.nanoTime() - begin) / 1e9);
    }
    System.out.println("end");
    System.exit(0);
  }

  static <P extends DefaultMQProducer> P started(P made) throws MQClientException {
    made.setNamesrvAddr(NAMESRV);
    made.setSendMsgTimeout(10_000);
    made.setPollNameServerInterval(500);
    made.setInstanceName("i" + System.nanoTime());
    made.start();
    return made;
  }

  static DefaultMQPushConsumer consumer(String group, String topic, String tags) throws Exception {
    DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
    made.setNamesrvAddr(NAMESRV);
    made.setPollNameServerInterval(500);
    made.setPersistConsumerOffsetInterval(500);
    made.setInstanceName("i" + System.nanoTime());
    made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    made.setConsumeMessageBatchMaxSize(1);
    if (tags != null) made.subscribe(topic, tags);
    return made;
  }

  /** Bodies come to {@code target}; all are consumed. */
  static DefaultMQPushConsumer reading(DefaultMQPushConsumer made, Collection<String> target)
      throws Exception {
    made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      for (MessageExt one : messages) target.add(text(one));
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    made.start();
    return made;
  }

  static Message message(String topic, String tag, String body) {
    return new Message(topic, tag, "key-" + body, body.getBytes(StandardCharsets.UTF_8));
  }

  static String text(Message one) { return new String(one.getBody(), StandardCharsets.UTF_8); }

  static void await(String what, BooleanSupplier condition) throws Exception {
    long end = System.nanoTime() + PATIENCE_MS * 1_000_000;
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > end) throw new TimeoutException(what);
      Thread.sleep(10);
    }
  }

  static List<String> sorted(Collection<String> all) { return all.stream().sorted().toList(); }

  static List<String> bodies(String prefix, int count) {
    return IntStream.range(0, count).mapToObj(number -> prefix + number).sorted().toList();
  }

  /** Sends as many messages, one after the other, and returns what the last was answered. */
  static SendResult fill(String topic, String prefix, int count) throws Exception {
    SendResult last = null;
    for (int number = 0; number < count; number++) {
      last = producer.send(message(topic, "TagA", prefix + number));
    }
    return last;
  }

  /** The message as it is stored; RocketMQ does not always have it at once. */
  static MessageExt stored(SendResult result) throws Exception {
    AtomicReference<MessageExt> found = new AtomicReference<>();
    await("the stored message", () -> {
      try {
        found.set(producer.viewMessage(result.getMessageQueue().getTopic(), result.getOffsetMsgId()));
      } catch (Exception error) { return false; }
      return true;
    });
    return found.get();
  }

  /** What producers can do. */
  static class Sending {
    static void add() {
      ALL.put("sync", Sending::sync);
      ALL.put("async", Sending::async);
      ALL.put("oneway", Sending::oneway);
      ALL.put("batch", Sending::batch);
      ALL.put("ordered", Sending::ordered);
      ALL.put("delayed", Sending::delayed);
      ALL.put("compressed", Sending::compressed);
      ALL.put("properties", Sending::properties);
      ALL.put("too-large", Sending::tooLarge);
    }

    static String sync() throws Exception {
      SendResult one = producer.send(message("f-sync", "TagA", "a0"));
      SendResult two = producer.send(message("f-sync", "TagA", "a1"), one.getMessageQueue());
      MessageQueue queue = one.getMessageQueue();
      return one.getSendStatus() + " " + two.getSendStatus() + " topic " + queue.getTopic()
          + " broker " + queue.getBrokerName() + " queue " + (queue.getQueueId() < 4)
          + " queues " + producer.fetchPublishMessageQueues("f-sync").size()
          + " next " + (two.getQueueOffset() - one.getQueueOffset())
          + " ids " + one.getMsgId().length() + " " + one.getOffsetMsgId().length()
          + " region " + one.getRegionId();
    }

    static String async() throws Exception {
      int count = 100;
      ConcurrentLinkedQueue<String> statuses = new ConcurrentLinkedQueue<>();
      for (int number = 0; number < count; number++) {
        producer.send(message("f-async", "TagA", "a" + number), new SendCallback() {
          public void onSuccess(SendResult result) { statuses.add(result.getSendStatus().name()); }
          public void onException(Throwable error) { statuses.add(error.toString()); }
        });
      }
      await("answers", () -> statuses.size() == count);
      return new TreeSet<>(statuses) + " " + statuses.size();
    }

    static String oneway() throws Exception {
      Set<String> came = ConcurrentHashMap.newKeySet();
      producer.send(message("f-oneway", "TagA", "a0"));
      for (int number = 1; number < 10; number++) {
        producer.sendOneway(message("f-oneway", "TagA", "a" + number));
      }
      DefaultMQPushConsumer made = reading(consumer("g-oneway", "f-oneway", "*"), came);
      await("ten", () -> came.size() == 10);
      made.shutdown();
      return sorted(came).equals(bodies("a", 10)) + " " + came.size();
    }

    static String batch() throws Exception {
      List<Message> all = new ArrayList<>();
      for (int number = 0; number < 32; number++) all.add(message("f-batch", "T" + number % 2, "b" + number));
      SendResult result = producer.send(all);
      SendResult next = producer.send(all.subList(0, 3), result.getMessageQueue());
      Set<String> came = ConcurrentHashMap.newKeySet();
      DefaultMQPushConsumer made = reading(consumer("g-batch", "f-batch", "T1"), came);
      await("sixteen", () -> came.size() == 16);
      made.shutdown();
      return result.getSendStatus() + " ids " + result.getMsgId().split(",").length + " "
          + result.getOffsetMsgId().split(",").length
          + " next " + (next.getQueueOffset() - result.getQueueOffset()) + " with T1 " + came.size();
    }

    static String ordered() throws Exception {
      Map<String, List<String>> came = new ConcurrentHashMap<>();
      Set<Integer> queues = ConcurrentHashMap.newKeySet();
      for (int number = 0; number < 60; number++) {
        Message one = message("f-ordered", "TagA", "k" + number % 3 + "-" + number);
        producer.send(one, (all, given, key) -> all.get((Integer) key % all.size()), number % 3);
      }
      AtomicInteger count = new AtomicInteger();
      AtomicBoolean asked = new AtomicBoolean();
      DefaultMQPushConsumer made = consumer("g-ordered", "f-ordered", "*");
      made.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
        MessageExt one = messages.get(0);
        // Once it wants to have a message again before the next one of the queue comes.
        if (text(one).equals("k1-31") && asked.compareAndSet(false, true)) {
          context.setSuspendCurrentQueueTimeMillis(50);
          return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }
        queues.add(one.getQueueId());
        came.computeIfAbsent(text(one).substring(0, 2), key -> Collections.synchronizedList(new ArrayList<>()))
            .add(text(one));
        count.incrementAndGet();
        return ConsumeOrderlyStatus.SUCCESS;
      });
      made.start();
      await("sixty", () -> count.get() >= 60);
      made.shutdown();
      boolean inOrder = true;
      for (int key = 0; key < 3; key++) {
        List<String> expected = new ArrayList<>();
        for (int number = key; number < 60; number += 3) expected.add("k" + key + "-" + number);
        inOrder &= expected.equals(came.get("k" + key));
      }
      return "in order " + inOrder + " of queues " + queues.size() + " messages " + count;
    }

    static String delayed() throws Exception {
      producer.send(message("f-delayed", "TagA", "at once"));
      Message one = message("f-delayed", "TagA", "later");
      one.setDelayTimeLevel(2);
      long begin = System.nanoTime();
      SendResult result = producer.send(one);
      Map<String, Long> came = new ConcurrentHashMap<>();
      DefaultMQPushConsumer made = consumer("g-delayed", "f-delayed", "*");
      Map<String, String> level = new ConcurrentHashMap<>();
      made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        came.putIfAbsent(text(messages.get(0)), System.nanoTime() - begin);
        level.put(text(messages.get(0)), messages.get(0).getDelayTimeLevel() + " " + messages.get(0).getReconsumeTimes());
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      made.start();
      await("later", () -> came.size() == 2);
      made.shutdown();
      double seconds = came.get("later") / 1e9;
      return result.getSendStatus() + " not before 4.8 s " + (seconds > 4.8) + " level " + level.get("later");
    }

    static String compressed() throws Exception {
      byte[] body = "compressible ".repeat(2_000).getBytes(StandardCharsets.UTF_8);
      SendResult result = producer.send(new Message("f-compressed", "TagA", body));
      MessageExt found = stored(result);
      return Arrays.equals(found.getBody(), body) + " stored smaller " + (found.getStoreSize() < body.length);
    }

    static String properties() throws Exception {
      Message one = new Message("f-properties", "Tag-é", "Schlüssel 键", 7, "ü".getBytes(StandardCharsets.UTF_8), true);
      one.putUserProperty("name", "wärt");
      one.setBuyerId("buyer");
      SendResult result = producer.send(one);
      MessageExt found = stored(result);
      Map<String, String> kept = new TreeMap<>(found.getProperties());
      kept.remove("UNIQ_KEY");
      return found.getFlag() + " " + found.getTags() + " " + found.getKeys() + " " + text(found) + " " + kept;
    }

    static String tooLarge() throws Exception {
      DefaultMQProducer large = new DefaultMQProducer("features-large");
      large.setMaxMessageSize(8 << 20);
      large.setCompressMsgBodyOverHowmuch(1 << 30);
      started(large);
      try {
        large.send(new Message("f-large", "TagA", new byte[5 << 20]));
        return "sent";
      } finally {
        large.shutdown();
      }
    }
  }

  /** What push consumers can do. */
  static class Consuming {
    static void add() {
      ALL.put("tags", Consuming::tags);
      ALL.put("sql", Consuming::sql);
      ALL.put("clustering", Consuming::clustering);
      ALL.put("broadcasting", Consuming::broadcasting);
      ALL.put("goes-on", Consuming::goesOn);
      ALL.put("begin-last", Consuming::beginLast);
      ALL.put("long-poll", Consuming::longPoll);
      ALL.put("retries", Consuming::retries);
      ALL.put("dead-letters", Consuming::deadLetters);
    }

    static String tags() throws Exception {
      for (int number = 0; number < 30; number++) {
        producer.send(message("f-tags", "T" + number % 3, "t" + number % 3 + "-" + number));
      }
      Set<String> came = ConcurrentHashMap.newKeySet();
      DefaultMQPushConsumer made = reading(consumer("g-tags", "f-tags", "T0 || T2"), came);
      await("twenty", () -> came.size() >= 20);
      made.shutdown();
      return came.size() + " of T1 " + came.stream().filter(one -> one.startsWith("t1")).count();
    }

    static String sql() throws Exception {
      for (int number = 0; number < 20; number++) {
        Message one = message("f-sql", "TagA", "s" + number);
        one.putUserProperty("n", "" + number);
        producer.send(one);
      }
      Set<String> came = ConcurrentHashMap.newKeySet();
      DefaultMQPushConsumer made = consumer("g-sql", "f-sql", null);
      made.subscribe("f-sql", MessageSelector.bySql("n BETWEEN 5 AND 9 OR n = 17"));
      reading(made, came);
      await("six", () -> came.size() >= 6);
      made.shutdown();
      return sorted(came).toString();
    }

    static String clustering() throws Exception {
      fill("f-clustering", "w", 1);
      Map<String, Integer> came = new ConcurrentHashMap<>();
      Set<String> one = ConcurrentHashMap.newKeySet(), two = ConcurrentHashMap.newKeySet();
      DefaultMQPushConsumer first = reading(consumer("g-clustering", "f-clustering", "*"), one);
      await("the first", () -> one.size() == 1);
      DefaultMQPushConsumer second = reading(consumer("g-clustering", "f-clustering", "*"), two);
      int[] sent = {0};
      // Each member gets half of the queues, so both get messages before long.
      await("both", () -> {
        try { fill("f-clustering", "c" + sent[0]++ + "-", 8); } catch (Exception error) { return false; }
        return one.size() > 1 && !two.isEmpty();
      });
      second.shutdown();
      int before = one.size() + two.size();
      fill("f-clustering", "last", 40);
      await("all of them", () -> {
        Set<String> all = new HashSet<>(one);
        all.addAll(two);
        return all.size() == 1 + 8 * sent[0] + 40;
      });
      first.shutdown();
      return "shared true, who stays has the rest " + (one.stream().filter(body -> body.startsWith("last")).count() == 40);
    }

    static String broadcasting() throws Exception {
      fill("f-broadcasting", "w", 1);
      Set<String> one = ConcurrentHashMap.newKeySet(), two = ConcurrentHashMap.newKeySet();
      DefaultMQPushConsumer[] made = {
        consumer("g-broadcasting", "f-broadcasting", "*"), consumer("g-broadcasting", "f-broadcasting", "*") };
      for (DefaultMQPushConsumer each : made) each.setMessageModel(MessageModel.BROADCASTING);
      reading(made[0], one);
      reading(made[1], two);
      fill("f-broadcasting", "b", 20);
      await("both have all", () -> one.containsAll(bodies("b", 20)) && two.containsAll(bodies("b", 20)));
      for (DefaultMQPushConsumer each : made) each.shutdown();
      return "each has 20";
    }

    static String goesOn() throws Exception {
      fill("f-goes-on", "a", 10);
      Set<String> one = ConcurrentHashMap.newKeySet();
      List<String> two = new CopyOnWriteArrayList<>();
      DefaultMQPushConsumer first = reading(consumer("g-goes-on", "f-goes-on", "*"), one);
      await("ten", () -> one.size() == 10);
      // Its offsets are committed at its end.
      first.shutdown();
      fill("f-goes-on", "b", 10);
      DefaultMQPushConsumer second = reading(consumer("g-goes-on", "f-goes-on", "*"), two);
      await("ten more", () -> two.size() >= 10);
      second.shutdown();
      return "only new ones " + sorted(two).equals(bodies("b", 10));
    }

    static String beginLast() throws Exception {
      fill("f-last", "a", 8);
      Set<String> came = ConcurrentHashMap.newKeySet();
      DefaultMQPushConsumer made = consumer("g-last", "f-last", "*");
      made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
      reading(made, came);
      // RocketMQ gives a new group of a young topic all messages all the same.
      await("eight", () -> came.size() >= 8);
      made.shutdown();
      return sorted(came).toString();
    }

    static String longPoll() throws Exception {
      fill("f-poll", "w", 1);
      Map<String, Long> came = new ConcurrentHashMap<>();
      DefaultMQPushConsumer made = consumer("g-poll", "f-poll", "*");
      made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        came.put(text(messages.get(0)), System.nanoTime());
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      made.start();
      await("the first", () -> came.size() == 1);
      long slowest = 0;
      for (int number = 0; number < 10; number++) {
        Thread.sleep(100);
        long begin = System.nanoTime();
        producer.send(message("f-poll", "TagA", "p" + number));
        int count = number + 2;
        await("one more", () -> came.size() == count);
        slowest = Math.max(slowest, came.get("p" + number) - begin);
      }
      made.shutdown();
      System.out.printf("figure slowest of ten long polls %.1f ms%n", slowest / 1e6);
      return "held, and answered when something comes";
    }

    static String retries() throws Exception {
      fill("f-retries", "r", 4);
      List<String> came = new CopyOnWriteArrayList<>();
      DefaultMQPushConsumer made = consumer("g-retries", "f-retries", "*");
      made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        MessageExt one = messages.get(0);
        came.add(text(one) + " " + one.getReconsumeTimes() + " " + one.getTopic());
        context.setDelayLevelWhenNextConsume(1);
        boolean fails = text(one).equals("r2") && one.getReconsumeTimes() < 2;
        return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      made.start();
      await("six", () -> came.size() >= 6);
      made.shutdown();
      return sorted(came).toString();
    }

    static String deadLetters() throws Exception {
      fill("f-dead", "d", 2);
      AtomicInteger times = new AtomicInteger();
      DefaultMQPushConsumer made = consumer("g-dead", "f-dead", "*");
      made.setMaxReconsumeTimes(1);
      made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        context.setDelayLevelWhenNextConsume(1);
        if (!text(messages.get(0)).equals("d1")) return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        times.incrementAndGet();
        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
      });
      made.start();
      await("twice", () -> times.get() == 2);
      List<String> dead = new CopyOnWriteArrayList<>();
      DefaultMQPushConsumer letters = consumer("g-dead-letters", "%DLQ%g-dead", "*");
      letters.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        MessageExt one = messages.get(0);
        dead.add(text(one) + " " + one.getReconsumeTimes() + " " + one.getProperty("RETRY_TOPIC") + " " + one.getTopic());
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      letters.start();
      await("a dead letter", () -> !dead.isEmpty());
      made.shutdown();
      letters.shutdown();
      return dead + " consumed " + times;
    }
  }

  /** What pull consumers and queries can do. */
  static class Pulling {
    static void add() {
      ALL.put("lite-subscribe", Pulling::liteSubscribe);
      ALL.put("lite-assign", Pulling::liteAssign);
      ALL.put("pull", Pulling::pull);
      ALL.put("offsets", Pulling::offsets);
      ALL.put("query", Pulling::query);
    }

    static DefaultLitePullConsumer lite(String group) {
      DefaultLitePullConsumer made = new DefaultLitePullConsumer(group);
      made.setNamesrvAddr(NAMESRV);
      made.setPollNameServerInterval(500);
      made.setInstanceName("i" + System.nanoTime());
      made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
      return made;
    }

    static Set<String> poll(DefaultLitePullConsumer made, int count) throws Exception {
      Set<String> came = new TreeSet<>();
      await(count + " messages", () -> {
        for (MessageExt one : made.poll(200)) came.add(text(one));
        return came.size() >= count;
      });
      return came;
    }

    static String liteSubscribe() throws Exception {
      fill("f-lite", "l", 12);
      DefaultLitePullConsumer made = lite("g-lite");
      made.setAutoCommit(false);
      made.subscribe("f-lite", "*");
      made.start();
      Set<String> came = poll(made, 12);
      made.commitSync();
      Thread.sleep(200);
      made.shutdown();
      fill("f-lite", "m", 4);
      DefaultLitePullConsumer again = lite("g-lite");
      again.subscribe("f-lite", "*");
      again.start();
      Set<String> more = poll(again, 4);
      again.shutdown();
      return came.size() + " then " + more;
    }

    static String liteAssign() throws Exception {
      MessageQueue queue = fill("f-assign", "a", 1).getMessageQueue();
      for (int number = 0; number < 9; number++) producer.send(message("f-assign", "TagA", "q" + number), queue);
      DefaultLitePullConsumer made = lite("g-assign");
      made.start();
      made.assign(made.fetchMessageQueues("f-assign").stream()
          .filter(one -> one.getQueueId() == queue.getQueueId()).toList());
      Set<String> all = poll(made, 10);
      MessageQueue known = made.fetchMessageQueues("f-assign").stream()
          .filter(one -> one.getQueueId() == queue.getQueueId()).findFirst().get();
      made.seek(known, 7);
      Set<String> tail = poll(made, 3);
      made.shutdown();
      return all.size() + " from 7 " + tail;
    }

    static DefaultMQPullConsumer puller(String group) throws Exception {
      DefaultMQPullConsumer made = new DefaultMQPullConsumer(group);
      made.setNamesrvAddr(NAMESRV);
      made.setInstanceName("i" + System.nanoTime());
      made.start();
      return made;
    }

    /** What is acknowledged is in its queue a moment later, with either broker. */
    static void inQueue(DefaultMQPullConsumer made, MessageQueue queue, long count) throws Exception {
      await(count + " messages in the queue", () -> {
        try {
          return made.maxOffset(queue) == count;
        } catch (MQClientException error) { return false; }
      });
    }

    static String pull() throws Exception {
      MessageQueue queue = fill("f-pull", "p", 1).getMessageQueue();
      for (int number = 0; number < 40; number++) producer.send(message("f-pull", "T" + number % 2, "q" + number), queue);
      DefaultMQPullConsumer made = puller("g-pull");
      inQueue(made, queue, 41);
      List<String> facts = new ArrayList<>();
      for (long offset : new long[] {0, 40, 41, 100}) {
        PullResult one = made.pull(queue, "*", offset, 32);
        facts.add(offset + " " + one.getPullStatus() + " next " + one.getNextBeginOffset() + " " + one.getMinOffset()
            + " " + one.getMaxOffset() + " found " + (one.getMsgFoundList() == null ? 0 : one.getMsgFoundList().size()));
      }
      PullResult tagged = made.pull(queue, "T1", 0, 32);
      facts.add("T1 " + tagged.getPullStatus() + " " + tagged.getMsgFoundList().size());
      PullResult none = made.pull(queue, "Nobody", 0, 32);
      facts.add("nobody's " + none.getPullStatus() + " next " + none.getNextBeginOffset());
      made.updateConsumeOffset(queue, 17);
      made.getDefaultMQPullConsumerImpl().getOffsetStore().persistAll(Set.of(queue));
      AtomicLong kept = new AtomicLong();
      await("the offset", () -> {
        try {
          kept.set(made.fetchConsumeOffset(queue, true));
        } catch (MQClientException error) { return false; }
        return kept.get() == 17;
      });
      made.shutdown();
      return facts + " committed " + kept;
    }

    static String offsets() throws Exception {
      MessageQueue queue = fill("f-offsets", "o", 1).getMessageQueue();
      Thread.sleep(50);
      long between = System.currentTimeMillis();
      Thread.sleep(50);
      for (int number = 0; number < 5; number++) producer.send(message("f-offsets", "TagA", "q" + number), queue);
      DefaultMQPullConsumer made = puller("g-offsets");
      inQueue(made, queue, 6);
      MessageQueue empty = new MessageQueue("f-offsets", queue.getBrokerName(), (queue.getQueueId() + 1) % 4);
      long never = made.fetchConsumeOffset(queue, true);
      long time = made.earliestMsgStoreTime(queue);
      String facts = "min " + made.minOffset(queue) + " max " + made.maxOffset(queue)
          + " at " + (made.searchOffset(queue, between + 40) >= 0) + " future " + made.searchOffset(queue, between + 3_600_000)
          + " past " + made.searchOffset(queue, 0)
          + " empty " + made.minOffset(empty) + " " + made.maxOffset(empty) + " " + made.searchOffset(empty, between)
          + " earliest " + (Math.abs(System.currentTimeMillis() - time) < 60_000) + " never committed " + never;
      made.shutdown();
      return facts;
    }

    static String query() throws Exception {
      Message one = new Message("f-query", "TagA", "order-1 order-2", "q".getBytes());
      SendResult result = producer.send(one);
      Message other = new Message("f-query", "TagA", "order-2", "r".getBytes());
      producer.send(other);
      long begin = System.currentTimeMillis() - 3_600_000, end = System.currentTimeMillis() + 3_600_000;
      AtomicReference<List<MessageExt>> found = new AtomicReference<>(List.of());
      await("both in the index", () -> {
        try {
          found.set(producer.queryMessage("f-query", "order-2", 32, begin, end).getMessageList());
        } catch (Exception error) { return false; }
        return found.get().size() == 2;
      });
      List<String> texts = found.get().stream().map(Features::text).sorted().toList();
      MessageExt unique = producer.viewMessage("f-query", result.getMsgId());
      MessageExt byOffset = stored(result);
      String nothing;
      try {
        nothing = "" + producer.queryMessage("f-query", "nobody", 32, begin, end).getMessageList().size();
      } catch (MQClientException error) {
        nothing = "code " + error.getResponseCode();
      }
      return texts + " by unique id " + text(unique) + " by offset id " + text(byOffset) + " nobody's " + nothing;
    }
  }

  /** Transactions, and requests with replies. */
  static class Ending {
    static void add() {
      ALL.put("transactions", Ending::transactions);
      ALL.put("request-reply", Ending::requestReply);
      ALL.put("request-timeout", Ending::requestTimeout);
    }

    static String transactions() throws Exception {
      producer.send(message("f-tx", "TagA", "w"));
      AtomicInteger asked = new AtomicInteger();
      TransactionMQProducer made = new TransactionMQProducer("g-tx-producer");
      made.setTransactionListener(new TransactionListener() {
        public LocalTransactionState executeLocalTransaction(Message one, Object given) {
          return (LocalTransactionState) given;
        }
        public LocalTransactionState checkLocalTransaction(MessageExt one) {
          asked.incrementAndGet();
          return text(one).equals("asked") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
      });
      started(made);
      Set<String> came = ConcurrentHashMap.newKeySet();
      DefaultMQPushConsumer reader = reading(consumer("g-tx", "f-tx", "*"), came);
      SendResult committed = made.sendMessageInTransaction(message("f-tx", "TagA", "committed"), LocalTransactionState.COMMIT_MESSAGE);
      made.sendMessageInTransaction(message("f-tx", "TagA", "rolled back"), LocalTransactionState.ROLLBACK_MESSAGE);
      await("the commit", () -> came.contains("committed"));
      Thread.sleep(500);
      boolean early = came.contains("rolled back");
      made.sendMessageInTransaction(message("f-tx", "TagA", "asked"), LocalTransactionState.UNKNOW);
      made.sendMessageInTransaction(message("f-tx", "TagA", "asked in vain"), LocalTransactionState.UNKNOW);
      await("the question", () -> came.contains("asked") && asked.get() >= 2);
      Thread.sleep(500);
      reader.shutdown();
      made.shutdown();
      return committed.getSendStatus() + " " + sorted(came) + " early " + early;
    }

    static String requestReply() throws Exception {
      fill("f-request", "w", 1);
      DefaultMQProducer answering = started(new DefaultMQProducer("g-answering"));
      DefaultMQPushConsumer server = consumer("g-server", "f-request", "*");
      server.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt one : messages) {
          if (one.getProperty("REPLY_TO_CLIENT") == null) continue;
          try {
            answering.send(MessageUtil.createReplyMessage(one, ("re: " + text(one)).getBytes()), 5_000);
          } catch (Exception error) {
            System.out.println("why request-reply: " + error);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
          }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      server.start();
      List<String> replies = new CopyOnWriteArrayList<>();
      for (String question : List.of("question", "other")) {
        producer.request(message("f-request", "TagA", question), collecting(replies), 20_000);
      }
      await("both replies", () -> replies.size() == 2);
      server.shutdown();
      answering.shutdown();
      return sorted(replies).toString();
    }

    // The form without a callback gives back the request itself in 4.9.4, whatever the broker does.
    static RequestCallback collecting(Collection<String> target) {
      return new RequestCallback() {
        public void onSuccess(Message one) { target.add(text(one)); }
        public void onException(Throwable error) { target.add(error.getClass().getSimpleName()); }
      };
    }

    static String requestTimeout() throws Exception {
      fill("f-nobody", "w", 1);
      List<String> replies = new CopyOnWriteArrayList<>();
      producer.request(message("f-nobody", "TagA", "question"), collecting(replies), 1_000);
      await("the end of the wait", () -> !replies.isEmpty());
      return replies.toString();
    }
  }
}
