import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs each line of its input as words of mqadmin, in one JVM; the words are parted by tabs. */
public class Mqadmin {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        int count = 0;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            // Without any words it lists its sub-commands.
            MQAdminStartup.main0(line.isEmpty() ? new String[0] : line.split("\t"), null);
            System.out.flush();
            System.err.flush();
            System.out.printf("%nmqadmin ended %d%n", count++);
            System.out.flush();
        }
        System.exit(0);
    }
}
