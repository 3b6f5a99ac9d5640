import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Iceberg's own REST catalog over a database of SQLite, on loopback; its port is printed. */
class RestCatalog {
  public static void main(String[] arguments) throws Exception {
    var catalog =
        CatalogUtil.buildIcebergCatalog(
            "rest",
            Map.of(
                "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
                "uri", "jdbc:sqlite:" + arguments[0],
                "jdbc.schema-version", "V1",
                "warehouse", arguments[1]),
            new Configuration());
    var server = new Server(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
    var context = new ServletContextHandler();
    context.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    server.setHandler(context);
    server.start();
    System.out.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
    server.join();
  }
}
