import org.apache.spark.sql.SparkSession;

/** FOLDER QUERY, and so on: rows of queries as Parquet, if they have any; settings are properties. */
class ReadTable {
  public static void main(String[] arguments) throws Exception {
    try (var spark = SparkSession.builder().getOrCreate()) {
      for (var number = 0; number < arguments.length; number += 2) {
        var found = spark.sql(arguments[number + 1]);
        if (found.columns().length > 0) {
          found.coalesce(1).write().parquet(arguments[number]);
        }
      }
    }
  }
}
