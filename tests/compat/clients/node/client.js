'use strict';

// Produces and consumes with ali-ons. Arguments: name servers (host:port;host:port), topic, messages. The topic
// has to be there: this client does not make any.
const { Consumer, Message, Producer } = require('ali-ons');

const [nameSrv, topic, wanted] = process.argv.slice(2);
const count = Number(wanted);
const common = {
  nameSrv: nameSrv.split(';'),
  // It is asked for, and not used where name servers are given.
  httpclient: {},
  clientIP: '127.0.0.1',
  accessKeyId: 'nobody-asks',
  accessKeySecret: 'nobody-asks',
  rebalanceInterval: 1000,
  pollNameServerInteval: 1000,
  logger: { info() {}, debug() {}, warn() {}, error(...words) { console.log('error', ...words); } },
};

async function main() {
  const producer = new Producer({ ...common, producerGroup: 'node-producer' });
  await producer.ready();
  for (let number = 0; number < count; number++) {
    const message = new Message(topic, 'TagA', `node-${number}`);
    message.keys = [`key-${number}`];
    const result = await producer.send(message);
    if (result.sendStatus !== 'SEND_OK') throw new Error(JSON.stringify(result));
  }
  console.log('sent', count);
  const came = new Map();
  const consumer = new Consumer({
    ...common,
    consumerGroup: `node-${topic}`,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.subscribe(topic, 'TagA', async message => {
    const body = message.body.toString();
    came.set(body, (came.get(body) || 0) + 1);
    // One of them comes again.
    return body === 'node-3' && came.get(body) === 1 ? Consumer.ACTION_RETRY : undefined;
  });
  await consumer.ready();
  await until(() => came.size >= count, 'consumption');
  console.log('consumed', came.size);
  await until(() => came.get('node-3') >= 2, 'the one that comes again');
  console.log('node-3 came', came.get('node-3'), 'times');
  await consumer.close();
  await producer.close();
}

async function until(condition, what) {
  const end = Date.now() + 60000;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`${what} did not happen`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

main().then(() => process.exit(0), error => {
  console.log('FAILED', error);
  process.exit(1);
});
