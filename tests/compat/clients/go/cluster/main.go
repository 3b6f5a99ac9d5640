// A producer and a consumer of RocketMQ's Go client that go on whatever happens to the brokers.
// Arguments: its own name, a topic for keys, a topic for any queue, name servers (host:port;host:port).
// It prints what it was told, a line each, as tests/process/cluster_history.py reads it. The line "stop" ends
// its producers, and the end of its input all of it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	keys  = 4
	plain = "-"
	pause = 20 * time.Millisecond
)

var (
	saying sync.Mutex
	sent   int
	stops  = make(chan struct{})
)

// say prints one whole line.
func say(format string, facts ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf(format+"\n", facts...)
}

func check(err error, what string) {
	if err != nil {
		say("FAILED %s %v", what, err)
		os.Exit(1)
	}
}

// send sends one message after the other, each as often as needed until it is acknowledged.
func send(sender rocketmq.Producer, name, topic, key string) {
	for number := 0; ; number++ {
		select {
		case <-stops:
			return
		default:
		}
		saying.Lock()
		sent++
		saying.Unlock()
		for {
			message := primitive.NewMessage(topic, []byte(fmt.Sprintf("%s %s %d", name, key, number)))
			if key != plain {
				message.WithShardingKey(name + key)
			}
			result, err := sender.SendSync(context.Background(), message)
			if err == nil && result.Status == primitive.SendOK {
				break
			}
			say("refused %d %s %v", time.Now().UnixMilli(), key, err)
			time.Sleep(pause)
		}
		say("acked %s %s %d %d", topic, key, number, time.Now().UnixMilli())
		time.Sleep(pause)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	name, keyed, open := os.Args[1], os.Args[2], os.Args[3]
	servers := strings.Split(os.Args[4], ";")
	made := func(group string, options ...producer.Option) rocketmq.Producer {
		options = append(options, producer.WithNameServer(servers), producer.WithGroupName(group),
			producer.WithInstanceName(group), producer.WithRetry(2))
		sender, err := rocketmq.NewProducer(options...)
		check(err, "producer")
		check(sender.Start(), "start of the producer")
		return sender
	}
	byKey := made(name+"-keyed", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	anywhere := made(name + "-any")
	reader, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName(name+"-readers"),
		consumer.WithInstance(name+"-readers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err, "consumer")
	for _, topic := range []string{keyed, open} {
		err = reader.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
			func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				for _, one := range messages {
					say("read %s %s %s %d %d %d", one.Topic, one.Body, one.Queue.BrokerName, one.Queue.QueueId,
						one.QueueOffset, time.Now().UnixMilli())
				}
				return consumer.ConsumeSuccess, nil
			})
		check(err, "subscription")
	}
	check(reader.Start(), "start of the consumer")
	var senders sync.WaitGroup
	for key := 0; key < keys; key++ {
		senders.Add(1)
		go func(key string) { defer senders.Done(); send(byKey, name, keyed, key) }(fmt.Sprint(key))
	}
	senders.Add(1)
	go func() { defer senders.Done(); send(anywhere, name, open, plain) }()

	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		if orders.Text() == "stop" {
			close(stops)
			senders.Wait()
			say("stopped %d", sent)
		}
	}
	check(reader.Shutdown(), "end of the consumer")
	check(byKey.Shutdown(), "end of a producer")
	check(anywhere.Shutdown(), "end of a producer")
}
