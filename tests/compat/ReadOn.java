import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;

/** A consumer of a group of RocketMQ's own: goes on where the broker says that the group is.
 *  Arguments: name server, group, topic, messages. Prints queue and offset of each that it gets. */
public class ReadOn {
  public static void main(String[] args) throws Exception {
    CountDownLatch left = new CountDownLatch(Integer.parseInt(args[3]));
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
    consumer.setNamesrvAddr(args[0]);
    consumer.subscribe(args[2], "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      messages.forEach(one -> {
        System.out.println("read " + one.getQueueId() + " " + one.getQueueOffset());
        left.countDown();
      });
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    boolean all = left.await(60, TimeUnit.SECONDS);
    Thread.sleep(1000); // what should not come would come now
    System.out.flush();
    consumer.shutdown();
    System.exit(all ? 0 : 1);
  }
}
