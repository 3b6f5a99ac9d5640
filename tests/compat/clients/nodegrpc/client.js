// RocketMQ's gRPC client for Node: one step a line comes in, its outcome goes out (python_grpc_client.py).
//
//     client.js ENDPOINTS [--key K --secret S] [--tls]

const readline = require('readline');
const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const {
  FilterType, TransactionResolution,
} = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [endpoints, ...words] = process.argv.slice(2);
const options = { endpoints, namespace: '', sslEnabled: words.includes('--tls') };
if (words.includes('--key')) {
  options.sessionCredentials = {
    accessKey: words[words.indexOf('--key') + 1], accessSecret: words[words.indexOf('--secret') + 1],
  };
}

// What comes when it wants to, and whoever waits for it.
class Arrivals {
  found = [];
  waiting = null;

  add(one) {
    this.found.push(one);
    this.waiting?.();
  }

  async next(waitS) {
    if (!this.found.length) {
      await new Promise((resolve, reject) => {
        this.waiting = resolve;
        setTimeout(() => reject(new Error('nothing came')), waitS * 1000);
      });
    }
    this.waiting = null;
    return this.found.shift();
  }
}

const opened = [];
const transactions = [];
const received = new Map();
const asked = new Arrivals();
const consumed = new Arrivals();
let producer;
let consumer;

const checker = {
  async check(message) {
    const body = message.body.toString();
    asked.add({ body, properties: Object.fromEntries(message.properties) });
    return body.endsWith(':commit') ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
  },
};

function messageOf({ topic, body, tag, keys, group, priority, delay_s: delayS, properties = {} }) {
  return {
    topic, body: Buffer.from(body), tag, keys: keys ? [keys] : [], messageGroup: group, priority,
    delay: delayS === undefined ? undefined : delayS * 1000, properties: new Map(Object.entries(properties)),
  };
}

function subscriptions({ topic, expression = '*', sql }) {
  const filter = sql ? new FilterExpression(sql, FilterType.SQL) : new FilterExpression(expression);
  return new Map().set(topic, filter);
}

const STEPS = {
  async start({ topics }) {
    producer = new Producer({ ...options, topics, checker });
    await producer.startup();
    opened.push(producer);
    return {};
  },
  async send(step) {
    const receipt = await producer.send(messageOf(step));
    return { id: receipt.messageId, offset: receipt.offset, handle: receipt.recallHandle };
  },
  async half(step) {
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(messageOf(step), transaction);
    transactions.push(transaction);
    return { id: receipt.messageId };
  },
  async end({ how }) {
    await transactions.shift()[how]();
    return {};
  },
  checked: ({ wait_s: waitS }) => asked.next(waitS),
  async recall({ topic, handle }) {
    return { id: (await producer.recallMessage(topic, handle)).messageId };
  },
  async consume(step) {
    consumer = new SimpleConsumer({
      ...options, consumerGroup: step.group, subscriptions: subscriptions(step), awaitDuration: 2000,
    });
    await consumer.startup();
    opened.push(consumer);
    return {};
  },
  async receive({ count, invisible_s: invisibleS }) {
    const found = await consumer.receive(count, invisibleS * 1000);
    found.forEach(one => received.set(one.messageId, one));
    return {
      messages: found.map(one => ({
        id: one.messageId, body: one.body.toString(), tag: one.tag, keys: one.keys,
        attempt: one.deliveryAttempt, group: one.messageGroup, properties: Object.fromEntries(one.properties),
      })),
    };
  },
  async ack({ id }) {
    await consumer.ack(received.get(id));
    return {};
  },
  async invisible({ id, seconds }) {
    await consumer.changeInvisibleDuration(received.get(id), seconds * 1000);
    return {};
  },
  async push(step) {
    const failed = new Map();
    const messageListener = {
      consume(message) {
        const times = (failed.get(message.messageId) ?? 0) + 1;
        failed.set(message.messageId, times);
        if (times <= step.fails) return ConsumeResult.FAILURE;
        consumed.add({ body: message.body.toString(), attempt: message.deliveryAttempt });
        return ConsumeResult.SUCCESS;
      },
    };
    const push = new PushConsumer({
      ...options, consumerGroup: step.group, subscriptions: subscriptions(step), messageListener,
    });
    await push.startup();
    opened.push(push);
    return {};
  },
  pushed: ({ wait_s: waitS }) => consumed.next(waitS),
  async stop() {
    for (const one of opened.splice(0)) await one.shutdown();
    return {};
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const step = JSON.parse(line);
    let outcome;
    try {
      outcome = await STEPS[step.step](step);
    } catch (error) {
      outcome = { error: error.name, reason: String(error.message) };
    }
    process.stdout.write(`${JSON.stringify(outcome)}\n`);
  }
  process.exit(0);
}

main();
