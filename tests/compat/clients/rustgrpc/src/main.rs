//! RocketMQ's gRPC client in Rust: one step a line comes in, its outcome goes out
//! (python_grpc_client.py).
//!
//!     rust-grpc-client ENDPOINTS [--key K --secret S] [--tls]

use std::collections::{HashMap, VecDeque};
use std::env;
use std::future::Future;
use std::io::{self, BufRead};
use std::pin::Pin;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Ending = Pin<Box<dyn Future<Output = Result<(), ClientError>>>>;

struct Client {
    words: Vec<String>,
    producer: Option<Producer>,
    consumer: Option<SimpleConsumer>,
    topic: String,
    filter: FilterExpression,
    transactions: VecDeque<Box<dyn FnOnce(bool) -> Ending>>,
    received: HashMap<String, MessageView>,
    questions: Sender<Value>,
    asked: Receiver<Value>,
}

fn word(step: &Value, name: &str) -> String {
    step[name].as_str().unwrap_or_default().to_string()
}

fn message(step: &Value) -> MessageBuilder {
    let mut made = MessageBuilder::builder()
        .set_topic(word(step, "topic"))
        .set_body(word(step, "body").into_bytes());
    if let Some(tag) = step["tag"].as_str() {
        made = made.set_tag(tag);
    }
    if let Some(keys) = step["keys"].as_str() {
        made = made.set_keys(vec![keys]);
    }
    if let Some(group) = step["group"].as_str() {
        made = made.set_message_group(group);
    }
    if let Some(delay_s) = step["delay_s"].as_f64() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        made = made.set_delivery_timestamp((now.as_secs_f64() + delay_s) as i64);
    }
    if let Some(properties) = step["properties"].as_object() {
        let pairs = properties.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap()));
        made = made.set_properties(pairs.collect::<HashMap<_, _>>());
    }
    made
}

impl Client {
    fn option(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.words[1].clone());
        option.set_enable_tls(self.words.iter().any(|word| word == "--tls"));
        option.set_long_polling_timeout(Duration::from_secs(6));
        if let Some(place) = self.words.iter().position(|word| word == "--key") {
            option.set_access_key(self.words[place + 1].clone());
            option.set_secret_key(self.words[place + 3].clone());
        }
        option
    }

    async fn start(&mut self, step: &Value) -> Result<Value, ClientError> {
        let mut option = ProducerOption::default();
        let topics = step["topics"].as_array().unwrap();
        option.set_topics(topics.iter().map(|one| one.as_str().unwrap()).collect());
        let questions = self.questions.clone();
        let checker = Box::new(move |_: String, message: MessageView| {
            let body = String::from_utf8_lossy(message.body()).to_string();
            let is_commit = body.ends_with(":commit");
            questions.send(json!({"body": body, "properties": message.properties()})).unwrap();
            if is_commit {
                TransactionResolution::COMMIT
            } else {
                TransactionResolution::ROLLBACK
            }
        });
        let mut producer = Producer::new_transaction_producer(option, self.option(), checker)?;
        producer.start().await?;
        self.producer = Some(producer);
        Ok(json!({}))
    }

    async fn send(&mut self, step: &Value) -> Result<Value, ClientError> {
        let receipt = self.producer.as_ref().unwrap().send(message(step).build()?).await?;
        Ok(json!({"id": receipt.message_id()}))
    }

    async fn half(&mut self, step: &Value) -> Result<Value, ClientError> {
        let made = message(step).enable_transaction().build()?;
        let transaction = self.producer.as_ref().unwrap().send_transaction_message(made).await?;
        let id = transaction.message_id().to_string();
        self.transactions.push_back(Box::new(move |is_commit| {
            Box::pin(async move {
                if is_commit {
                    transaction.commit().await
                } else {
                    transaction.rollback().await
                }
            })
        }));
        Ok(json!({"id": id}))
    }

    async fn consume(&mut self, step: &Value) -> Result<Value, ClientError> {
        let mut option = SimpleConsumerOption::default();
        self.topic = word(step, "topic");
        option.set_topics(vec![self.topic.clone()]);
        option.set_consumer_group(word(step, "group"));
        self.filter = match step["sql"].as_str() {
            Some(sql) => FilterExpression::new(FilterType::Sql, sql),
            None => {
                FilterExpression::new(FilterType::Tag, step["expression"].as_str().unwrap_or("*"))
            }
        };
        let mut consumer = SimpleConsumer::new(option, self.option())?;
        consumer.start().await?;
        self.consumer = Some(consumer);
        Ok(json!({}))
    }

    async fn receive(&mut self, step: &Value) -> Result<Value, ClientError> {
        let count = step["count"].as_i64().unwrap() as i32;
        let invisible = Duration::from_secs(step["invisible_s"].as_u64().unwrap());
        let consumer = self.consumer.as_ref().unwrap();
        let found = consumer.receive_with(&self.topic, &self.filter, count, invisible).await?;
        let mut told = vec![];
        for one in found {
            told.push(json!({
                "id": one.message_id(), "body": String::from_utf8_lossy(one.body()),
                "tag": one.tag(), "keys": one.keys(), "attempt": one.delivery_attempt(),
                "group": one.message_group(), "properties": one.properties(),
            }));
            self.received.insert(one.message_id().to_string(), one);
        }
        Ok(json!({ "messages": told }))
    }

    async fn outcome(&mut self, step: &Value) -> Result<Value, ClientError> {
        match step["step"].as_str().unwrap() {
            "start" => self.start(step).await,
            "send" => self.send(step).await,
            "half" => self.half(step).await,
            "end" => {
                let end = self.transactions.pop_front().unwrap();
                end(word(step, "how") == "commit").await?;
                Ok(json!({}))
            }
            "checked" => {
                let wait = Duration::from_secs_f64(step["wait_s"].as_f64().unwrap());
                Ok(self.asked.recv_timeout(wait).unwrap_or(json!({"error": "nothing came"})))
            }
            "consume" => self.consume(step).await,
            "receive" => self.receive(step).await,
            "ack" => {
                let message = &self.received[&word(step, "id")];
                self.consumer.as_ref().unwrap().ack(message).await?;
                Ok(json!({}))
            }
            "stop" => {
                if let Some(producer) = self.producer.take() {
                    producer.shutdown().await?;
                }
                if let Some(consumer) = self.consumer.take() {
                    consumer.shutdown().await?;
                }
                Ok(json!({}))
            }
            other => Ok(json!({"error": "it has none", "reason": other})),
        }
    }
}

#[tokio::main]
async fn main() {
    let (questions, asked) = channel();
    let mut client = Client {
        words: env::args().collect(),
        producer: None,
        consumer: None,
        topic: String::new(),
        filter: FilterExpression::new(FilterType::Tag, "*"),
        transactions: VecDeque::new(),
        received: HashMap::new(),
        questions,
        asked,
    };
    for line in io::stdin().lock().lines() {
        let step: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let outcome = match client.outcome(&step).await {
            Ok(outcome) => outcome,
            Err(error) => json!({"error": error.kind().to_string(), "reason": error.to_string()}),
        };
        println!("{outcome}");
    }
}
