import java.util.Scanner;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends each message of one topic to another one, with its trace context; both clients write traces.
 *  Arguments: the topics. Says "relayed ID" of each that it has sent, and ends when it reads a line. */
public class Relay {
  public static void main(String[] args) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("relay-producer", true);
    producer.setNamesrvAddr(System.getenv("NAMESRV"));
    producer.start();
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
        null, "relay", null, new AllocateMessageQueueAveragely(), true, null);
    consumer.setNamesrvAddr(System.getenv("NAMESRV"));
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(args[0], "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      for (MessageExt one : messages) {
        Message copy = new Message(args[1], one.getBody());
        for (String name : new String[] {"traceparent", "tracestate"}) {
          String value = one.getProperty(name);
          if (value != null) copy.putUserProperty(name, value);
        }
        try {
          SendResult result = producer.send(copy);
          if (result.getSendStatus() != SendStatus.SEND_OK) throw new IllegalStateException("" + result);
          System.out.println("relayed " + result.getMsgId());
        } catch (Exception error) {
          System.out.println("not relayed: " + error);
          return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
      }
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    System.out.println("started");
    new Scanner(System.in).nextLine();
    consumer.shutdown();
    producer.shutdown();
    System.exit(0);
  }
}
