import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.acl.common.*;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** Signs what it sends and consumes. Arguments: access key, secret, topic, group, count, a topic that
 *  it has no right to. Says "consumed N", how many messages are found by a key that one of them has,
 *  and the codes with which it is refused the other topic, and whoever signs with another secret. */
public class Signed {
  static RPCHook hook(String key, String secret) {
    return new AclClientRPCHook(new SessionCredentials(key, secret));
  }

  static DefaultMQProducer producer(String group, RPCHook hook) throws Exception {
    DefaultMQProducer made = new DefaultMQProducer(group, hook);
    made.setNamesrvAddr(System.getenv("NAMESRV"));
    made.setInstanceName("i" + System.nanoTime());
    made.setSendMsgTimeout(10_000);
    made.start();
    return made;
  }

  static String refused(DefaultMQProducer producer, String topic) throws Exception {
    try {
      producer.send(new Message(topic, "no".getBytes(StandardCharsets.UTF_8)));
      return "none";
    } catch (MQClientException error) {
      // It has tried all brokers: the last one's code.
      return "" + error.getResponseCode();
    }
  }

  public static void main(String[] args) throws Exception {
    System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
    int count = Integer.parseInt(args[4]);
    DefaultMQProducer producer = producer("signed", hook(args[0], args[1]));
    Set<String> wanted = ConcurrentHashMap.newKeySet();
    for (int number = 0; number < count; number++) {
      wanted.add("signed " + number);
      byte[] body = ("signed " + number).getBytes(StandardCharsets.UTF_8);
      producer.send(new Message(args[2], "", "key" + number, body));
    }
    CountDownLatch all = new CountDownLatch(1);
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
        args[3], hook(args[0], args[1]), new AllocateMessageQueueAveragely());
    consumer.setNamesrvAddr(System.getenv("NAMESRV"));
    consumer.setInstanceName("i" + System.nanoTime());
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(args[2], "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      messages.forEach(one -> wanted.remove(new String(one.getBody(), StandardCharsets.UTF_8)));
      if (wanted.isEmpty()) all.countDown();
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    if (!all.await(120, TimeUnit.SECONDS)) throw new TimeoutException("left " + wanted);
    System.out.println("consumed " + count);
    // It asks for all of a key and takes those whose keys have it; throws where there are none.
    int found = producer.queryMessage(args[2], "key0", 8, 0, Long.MAX_VALUE).getMessageList().size();
    System.out.println("found by key " + found);
    System.out.println("other topic " + refused(producer, args[5]));
    DefaultMQProducer forger = producer("forger", hook(args[0], args[1] + "x"));
    System.out.println("other secret " + refused(forger, args[2]));
    consumer.shutdown();
    producer.shutdown();
    forger.shutdown();
    System.exit(0);
  }
}
