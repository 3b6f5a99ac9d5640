import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes by POP what has the tag a or b, until all of so many messages are acknowledged; what says "again" fails the
 * first time. Prints each delivery: body, how often it was tried before, and whether it came by POP.
 */
public class Pop {
    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0], group = arguments[1], topic = arguments[2];
        int wanted = Integer.parseInt(arguments[3]);
        Set<String> done = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "a || b");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = new String(message.getBody());
            System.out.printf("got %s %d %b%n", body, message.getReconsumeTimes(),
                message.getProperty(MessageConst.PROPERTY_POP_CK) != null);
            if (body.equals("again") && message.getReconsumeTimes() == 0) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            done.add(body);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQPushConsumerImpl impl = consumer.getDefaultMQPushConsumerImpl();
        while (done.size() < wanted || isAwaited(impl)) {
            Thread.sleep(50);
        }
        consumer.shutdown();
        System.out.println("ended");
        System.exit(0);
    }

    private static boolean isAwaited(DefaultMQPushConsumerImpl impl) {
        return impl.getRebalanceImpl().getPopProcessQueueTable().values().stream()
            .anyMatch(queue -> queue.getWaiAckMsgCount() > 0);
    }
}
