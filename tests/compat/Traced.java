import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Sends and consumes messages whose way is traced. Arguments: topic, count, seconds. Says "sent ID OFFSETID"
 *  of each, "consumed" once all have come (within the seconds given), and goes on until it reads a line: traces are written
 *  meanwhile, the last ones at the end. */
public class Traced {
  public static void main(String[] args) throws Exception {
    // The client's threads would go on, and whoever waits for a line would not know why.
    Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
      error.printStackTrace(System.out);
      System.exit(1);
    });
    int count = Integer.parseInt(args[1]);
    int patienceMs = 1000 * Integer.parseInt(args[2]);
    DefaultMQProducer producer = new DefaultMQProducer("traced-producer", true);
    producer.setNamesrvAddr(System.getenv("NAMESRV"));
    // Three seconds each otherwise, which a busy machine needs for itself now and then.
    producer.setMqClientApiTimeout(patienceMs);
    producer.setSendMsgTimeout(patienceMs);
    producer.start();
    CountDownLatch came = new CountDownLatch(count);
    Set<String> wanted = Collections.synchronizedSet(new HashSet<>());
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
        null, "traced-consumer", null, new AllocateMessageQueueAveragely(), true, null);
    consumer.setNamesrvAddr(System.getenv("NAMESRV"));
    consumer.setMqClientApiTimeout(patienceMs);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(args[0], "traced");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      messages.forEach(one -> came.countDown());
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    for (int number = 0; number < count; number++) {
      byte[] body = ("traced " + number).getBytes(StandardCharsets.UTF_8);
      SendResult result = producer.send(new Message(args[0], "traced", "key" + number, body));
      if (result.getSendStatus() != SendStatus.SEND_OK) throw new IllegalStateException("" + result);
      System.out.println("sent " + result.getMsgId() + " " + result.getOffsetMsgId());
    }
    if (!came.await(patienceMs, TimeUnit.MILLISECONDS)) {
      System.out.println("not consumed: " + came.getCount() + " of " + count + ", queues "
          + consumer.getDefaultMQPushConsumerImpl().consumerRunningInfo().formatString());
      System.exit(1);
    }
    System.out.println("consumed");
    new Scanner(System.in).nextLine();
    consumer.shutdown();
    producer.shutdown();
    System.exit(0);
  }
}
