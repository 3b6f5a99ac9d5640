import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends a batch of so many messages to queue 0 of a topic, if any are wanted, and prints all that a pull consumer gets
 * of the topic: queue, queue offset, body, tags, keys.
 */
public class Pulled {
    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0], topic = arguments[1], expression = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        if (count > 0) {
            send(nameServer, topic, count);
        }
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pulling");
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
            long offset = consumer.minOffset(queue);
            while (offset < consumer.maxOffset(queue)) {
                PullResult result = consumer.pull(queue, expression, offset, 32, 10_000);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt one : result.getMsgFoundList()) {
                        System.out.printf("got %d %d %s %s %s%n", queue.getQueueId(), one.getQueueOffset(),
                            new String(one.getBody()), one.getTags(), one.getKeys());
                    }
                }
                offset = Math.max(offset + 1, result.getNextBeginOffset());
            }
        }
        consumer.shutdown();
        System.out.println("ended");
        System.exit(0);
    }

    private static void send(String nameServer, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("sending");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            batch.add(new Message(topic, number % 2 == 0 ? "even" : "odd", "k" + number, ("java-" + number).getBytes()));
        }
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).stream()
            .filter(one -> one.getQueueId() == 0).findFirst().get();
        System.out.println("sent " + producer.send(batch, queue).getQueueOffset());
        producer.shutdown();
    }
}
