import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashSet;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The clients whose life a console shows: a producer and a consumer that write traces. Arguments: topic,
 *  count. Says "producer ID", "consumer ID", "sent ID OFFSETID" of each message and "consumed" once all have
 *  come. The last message is given back the first time it comes, and has no second try. It goes on until it
 *  reads a line. */
public class Walked {
  public static void main(String[] args) {
    try {
      live(args);
      System.exit(0);
    } catch (Exception error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  private static void live(String[] args) throws Exception {
    int count = Integer.parseInt(args[1]);
    DefaultMQProducer producer = new DefaultMQProducer("walk-producer", true);
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
        null, "walk-reader", null, new AllocateMessageQueueAveragely(), true, null);
    producer.setNamesrvAddr(System.getenv("NAMESRV"));
    consumer.setNamesrvAddr(System.getenv("NAMESRV"));
    // So that another leader knows them soon, and a walk need not wait half a minute for it.
    producer.setPollNameServerInterval(3_000);
    producer.setHeartbeatBrokerInterval(3_000);
    consumer.setPollNameServerInterval(3_000);
    consumer.setHeartbeatBrokerInterval(3_000);
    producer.start();
    Set<String> refused = Collections.synchronizedSet(new HashSet<>());
    CountDownLatch came = new CountDownLatch(count);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setMaxReconsumeTimes(0);
    consumer.subscribe(args[0], "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      for (MessageExt one : messages) {
        came.countDown();
        if ("dead".equals(one.getTags()) && refused.add(one.getMsgId())) {
          return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
      }
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    try {
      consumer.start();
    } catch (IllegalStateException late) {
      // It runs: only its first question for routes was answered late, and it asks again by itself.
      System.out.println("late " + late);
    }
    System.out.println("producer " + producer.buildMQClientId());
    System.out.println("consumer " + consumer.buildMQClientId());
    for (int number = 0; number < count; number++) {
      String tag = number == count - 1 ? "dead" : "alive";
      byte[] body = ("body " + number).getBytes(StandardCharsets.UTF_8);
      SendResult result = producer.send(new Message(args[0], tag, "key" + number, body));
      System.out.println("sent " + result.getMsgId() + " " + result.getOffsetMsgId());
    }
    if (!came.await(120, TimeUnit.SECONDS)) throw new IllegalStateException("not consumed");
    System.out.println("consumed");
    new Scanner(System.in).nextLine();
    consumer.shutdown();
    producer.shutdown();
  }
}
