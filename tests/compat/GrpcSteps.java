// RocketMQ's gRPC client in Java: one step a line comes in, its outcome goes out (python_grpc_client.py).
//
//     GrpcSteps ENDPOINTS [--key K --secret S] [--tls]

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

public class GrpcSteps {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Gson GSON = new Gson();

    final ClientConfiguration configuration;
    final List<AutoCloseable> opened = new ArrayList<>();
    final ArrayDeque<Transaction> transactions = new ArrayDeque<>();
    final Map<String, MessageView> received = new HashMap<>();
    final BlockingQueue<JsonObject> asked = new LinkedBlockingQueue<>();
    final BlockingQueue<JsonObject> consumed = new LinkedBlockingQueue<>();
    Producer producer;
    SimpleConsumer consumer;

    GrpcSteps(List<String> words) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(words.get(0)).enableSsl(words.contains("--tls"));
        if (words.contains("--key")) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(
                words.get(words.indexOf("--key") + 1), words.get(words.indexOf("--secret") + 1)));
        }
        configuration = builder.build();
    }

    static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static Message message(JsonObject step) {
        MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(word(step, "topic"))
            .setBody(word(step, "body").getBytes(StandardCharsets.UTF_8));
        if (step.has("tag")) {
            message.setTag(word(step, "tag"));
        }
        if (step.has("keys")) {
            message.setKeys(word(step, "keys"));
        }
        if (step.has("group")) {
            message.setMessageGroup(word(step, "group"));
        }
        if (step.has("priority")) {
            message.setPriority(step.get("priority").getAsInt());
        }
        if (step.has("delay_s")) {
            long delayMs = (long) (step.get("delay_s").getAsDouble() * 1000);
            message.setDeliveryTimestamp(System.currentTimeMillis() + delayMs);
        }
        if (step.has("properties")) {
            for (Map.Entry<String, JsonElement> one : step.getAsJsonObject("properties").entrySet()) {
                message.addProperty(one.getKey(), one.getValue().getAsString());
            }
        }
        return message.build();
    }

    static String word(JsonObject step, String name) {
        return step.get(name).getAsString();
    }

    static JsonObject pair(String name, Object value) {
        JsonObject pair = new JsonObject();
        pair.add(name, GSON.toJsonTree(value));
        return pair;
    }

    static Map<String, FilterExpression> subscription(JsonObject step) {
        FilterExpressionType type = step.has("sql") ? FilterExpressionType.SQL92 : FilterExpressionType.TAG;
        String expression = step.has("sql") ? word(step, "sql")
            : step.has("expression") ? word(step, "expression") : "*";
        return Collections.singletonMap(word(step, "topic"), new FilterExpression(expression, type));
    }

    JsonObject start(JsonObject step) throws Exception {
        String[] topics = GSON.fromJson(step.get("topics"), String[].class);
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topics)
            .setTransactionChecker(message -> {
                JsonObject question = pair("body", text(message));
                question.add("properties", GSON.toJsonTree(message.getProperties()));
                asked.add(question);
                return text(message).endsWith(":commit")
                    ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
            }).build();
        opened.add(producer);
        return new JsonObject();
    }

    JsonObject send(JsonObject step) throws Exception {
        SendReceipt receipt = producer.send(message(step));
        JsonObject outcome = pair("id", receipt.getMessageId().toString());
        outcome.addProperty("handle", receipt.getRecallHandle());
        return outcome;
    }

    JsonObject half(JsonObject step) throws Exception {
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message(step), transaction);
        transactions.add(transaction);
        return pair("id", receipt.getMessageId().toString());
    }

    JsonObject end(JsonObject step) throws Exception {
        Transaction transaction = transactions.remove();
        if (word(step, "how").equals("commit")) {
            transaction.commit();
        } else {
            transaction.rollback();
        }
        return new JsonObject();
    }

    static JsonObject next(BlockingQueue<JsonObject> from, JsonObject step) throws Exception {
        JsonObject found = from.poll((long) (step.get("wait_s").getAsDouble() * 1000), TimeUnit.MILLISECONDS);
        if (found == null) {
            throw new IllegalStateException("nothing came");
        }
        return found;
    }

    JsonObject recall(JsonObject step) throws Exception {
        return pair("id", producer.recallMessage(word(step, "topic"), word(step, "handle"))
            .getMessageId().toString());
    }

    JsonObject consume(JsonObject step) throws Exception {
        consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(word(step, "group")).setAwaitDuration(Duration.ofSeconds(2))
            .setSubscriptionExpressions(subscription(step)).build();
        opened.add(consumer);
        return new JsonObject();
    }

    JsonObject receive(JsonObject step) throws Exception {
        List<Map<String, Object>> messages = new ArrayList<>();
        Duration invisible = Duration.ofSeconds(step.get("invisible_s").getAsInt());
        for (MessageView one : consumer.receive(step.get("count").getAsInt(), invisible)) {
            Map<String, Object> told = new HashMap<>();
            told.put("id", one.getMessageId().toString());
            told.put("body", text(one));
            told.put("tag", one.getTag().orElse(null));
            told.put("keys", one.getKeys());
            told.put("attempt", one.getDeliveryAttempt());
            told.put("group", one.getMessageGroup().orElse(null));
            told.put("properties", one.getProperties());
            messages.add(told);
            received.put(one.getMessageId().toString(), one);
        }
        return pair("messages", messages);
    }

    JsonObject ack(JsonObject step) throws Exception {
        consumer.ack(received.get(word(step, "id")));
        return new JsonObject();
    }

    JsonObject invisible(JsonObject step) throws Exception {
        consumer.changeInvisibleDuration(
            received.get(word(step, "id")), Duration.ofSeconds(step.get("seconds").getAsInt()));
        return new JsonObject();
    }

    JsonObject push(JsonObject step) throws Exception {
        int fails = step.get("fails").getAsInt();
        Map<String, Integer> failed = new ConcurrentHashMap<>();
        opened.add(PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(word(step, "group")).setSubscriptionExpressions(subscription(step))
            .setMessageListener(message -> {
                if (failed.merge(message.getMessageId().toString(), 1, Integer::sum) <= fails) {
                    return ConsumeResult.FAILURE;
                }
                JsonObject told = pair("body", text(message));
                told.addProperty("attempt", message.getDeliveryAttempt());
                consumed.add(told);
                return ConsumeResult.SUCCESS;
            }).build());
        return new JsonObject();
    }

    JsonObject stop() throws Exception {
        for (AutoCloseable one : opened) {
            one.close();
        }
        opened.clear();
        return new JsonObject();
    }

    JsonObject outcome(JsonObject step) throws Exception {
        switch (word(step, "step")) {
            case "start": return start(step);
            case "send": return send(step);
            case "half": return half(step);
            case "end": return end(step);
            case "checked": return next(asked, step);
            case "recall": return recall(step);
            case "consume": return consume(step);
            case "receive": return receive(step);
            case "ack": return ack(step);
            case "invisible": return invisible(step);
            case "push": return push(step);
            case "pushed": return next(consumed, step);
            case "stop": return stop();
            default: throw new IllegalArgumentException(word(step, "step"));
        }
    }

    public static void main(String[] words) throws Exception {
        GrpcSteps client = new GrpcSteps(Arrays.asList(words));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject outcome;
            try {
                outcome = client.outcome(GSON.fromJson(line, JsonObject.class));
            } catch (Exception error) {
                outcome = pair("error", error.getClass().getSimpleName());
                outcome.addProperty("reason", String.valueOf(error.getMessage()));
            }
            System.out.println(GSON.toJson(outcome));
        }
        System.exit(0);
    }
}
