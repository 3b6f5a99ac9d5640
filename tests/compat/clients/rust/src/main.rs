// Produces and consumes with RocketMQ's Rust client, and prints a line of facts for each feature.
// Arguments: name servers (host:port;host:port), topic, messages.
#![recursion_limit = "512"]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rocketmq_client_rust::{
    ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus, DefaultMQProducer, DefaultMQPushConsumer, MQPushConsumer,
    MessageListenerConcurrently,
};
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};

const PATIENCE: Duration = Duration::from_secs(90);
const SEND_MS: u64 = 10_000;
const RETRIED: &str = "rust-3";

type Counts = Arc<Mutex<HashMap<String, usize>>>;

/// Counts bodies; the first time that it sees one of them it fails.
struct Listener {
    came: Counts,
}

impl MessageListenerConcurrently for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        let mut came = self.came.lock().unwrap();
        let mut status = ConsumeConcurrentlyStatus::ConsumeSuccess;
        for message in messages {
            let body = message.body().unwrap_or_default();
            let text = String::from_utf8_lossy(&body).into_owned();
            let times = came.entry(text.clone()).or_default();
            *times += 1;
            if text == RETRIED && *times == 1 {
                status = ConsumeConcurrentlyStatus::ReconsumeLater;
            }
        }
        Ok(status)
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (servers, topic) = (words[1].clone(), words[2].clone());
    let count: usize = words[3].parse().expect("a number of messages");
    let owner = RuntimeOwner::plan(RuntimeConfig::default())
        .expect("a runtime's settings")
        .build()
        .expect("a runtime");
    let telemetry = rocketmq_observability::install_global(&Default::default()).expect("telemetry");
    let client = ClientRuntime::try_new(
        owner.root_context().component("client"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )
    .expect("a client");

    let mut producer = DefaultMQProducer::builder(client.clone())
        .producer_group("rust-producer".to_string())
        .name_server_addr(servers.clone())
        .build();
    producer.start().await.expect("a producer");
    for number in 0..count {
        let body = format!("rust-{number}");
        let message = Message::builder()
            .topic(topic.as_str())
            .tags("TagA")
            .body_slice(body.as_bytes())
            .build_unchecked();
        producer.send_with_timeout(message, SEND_MS).await.expect("a send");
    }
    println!("sent {count}");

    let came: Counts = Arc::default();
    let mut consumer = DefaultMQPushConsumer::builder(client.clone())
        .consumer_group("rust-consumer".to_string())
        .name_server_addr(servers)
        .build();
    consumer.subscribe(topic.as_str(), "*").await.expect("a subscription");
    consumer.register_message_listener_concurrently(Listener { came: came.clone() });
    consumer.start().await.expect("a consumer");
    let began = Instant::now();
    let has_come = || {
        let came = came.lock().unwrap();
        came.len() == count && came.get(RETRIED) == Some(&2)
    };
    while !has_come() && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("consumed {}", came.lock().unwrap().len());
    println!("{RETRIED} came {} times", came.lock().unwrap().get(RETRIED).unwrap_or(&0));
    consumer.shutdown().await;
    producer.shutdown().await;
    // What its threads still wait for is nobody's: the process ends here.
    std::process::exit(0);
}
