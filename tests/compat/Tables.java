import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.schedule.DelayOffsetSerializeWrapper;

/**
 * What RocketMQ's own classes read of the text of a table. Each line of the input is a kind and a
 * text in base64; each line of the output is what was read, as JSON, or ERROR and why.
 */
public class Tables {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = lines.readLine()) != null; ) {
            int space = line.indexOf(' ');
            byte[] text = Base64.getDecoder().decode(line.substring(space + 1));
            String said;
            try {
                // As MixAll.file2String reads a file where the charset is UTF-8.
                said = JSON.toJSONString(read(line.substring(0, space), new String(text, StandardCharsets.UTF_8)));
            } catch (Throwable error) {
                said = "ERROR " + error;
            }
            StringBuilder ascii = new StringBuilder();
            for (char one : said.toCharArray()) {
                ascii.append(one == '\n' || one == '\r' ? ' ' : one);
            }
            System.out.println("said " + Base64.getEncoder().encodeToString(ascii.toString().getBytes(StandardCharsets.UTF_8)));
        }
    }

    static Object read(String kind, String text) {
        Map<String, Object> found = new LinkedHashMap<>();
        Map<String, Object> rows = new TreeMap<>();
        if (kind.equals("topics")) {
            TopicConfigSerializeWrapper table = RemotingSerializable.fromJson(text, TopicConfigSerializeWrapper.class);
            if (table == null) {
                return null;
            }
            found.put("version", version(table.getDataVersion()));
            for (Map.Entry<String, TopicConfig> row : table.getTopicConfigTable().entrySet()) {
                TopicConfig one = row.getValue();
                rows.put(row.getKey(), new Object[] {one.getReadQueueNums(), one.getWriteQueueNums(), one.getPerm(),
                    one.isOrder(), one.getTopicSysFlag()});
            }
        } else if (kind.equals("groups")) {
            SubscriptionGroupManager table = RemotingSerializable.fromJson(text, SubscriptionGroupManager.class);
            if (table == null) {
                return null;
            }
            found.put("version", version(table.getDataVersion()));
            for (Map.Entry<String, SubscriptionGroupConfig> row : table.getSubscriptionGroupTable().entrySet()) {
                SubscriptionGroupConfig one = row.getValue();
                rows.put(row.getKey(), new Object[] {one.isConsumeEnable(), one.getRetryQueueNums(), one.getRetryMaxTimes(),
                    one.isConsumeBroadcastEnable(), one.isConsumeFromMinEnable(), one.getBrokerId()});
            }
        } else if (kind.equals("offsets")) {
            ConsumerOffsetManager table = RemotingSerializable.fromJson(text, ConsumerOffsetManager.class);
            if (table == null) {
                return null;
            }
            for (Map.Entry<String, ? extends Map<Integer, Long>> row : table.getOffsetTable().entrySet()) {
                rows.put(row.getKey(), texts(row.getValue()));
            }
        } else {
            DelayOffsetSerializeWrapper table = RemotingSerializable.fromJson(text, DelayOffsetSerializeWrapper.class);
            if (table == null) {
                return null;
            }
            rows.putAll(texts(table.getOffsetTable()));
        }
        found.put("rows", rows);
        return found;
    }

    static Object version(DataVersion version) {
        return new Object[] {version.getCounter().get(), version.getTimestamp()};
    }

    static Map<String, Object> texts(Map<Integer, Long> numbers) {
        Map<String, Object> found = new TreeMap<>();
        numbers.forEach((key, value) -> found.put(String.valueOf(key), value));
        return found;
    }
}
