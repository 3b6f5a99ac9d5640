// Produces and consumes with RocketMQ's Go client, and prints a line of facts for each feature.
// Arguments: name servers (host:port;host:port), topic, messages.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 60 * time.Second

// check ends the program when something has failed.
func check(err error, what string) {
	if err != nil {
		fmt.Println("FAILED", what, err)
		os.Exit(1)
	}
}

// collected is what a consumer was given; safe for its goroutines.
type collected struct {
	sync.Mutex
	bodies map[string]int
	order  []string
}

func (c *collected) add(body string) int {
	c.Lock()
	defer c.Unlock()
	c.bodies[body]++
	c.order = append(c.order, body)
	return c.bodies[body]
}

func (c *collected) wait(count int, what string) {
	end := time.Now().Add(patience)
	for {
		c.Lock()
		found := len(c.bodies)
		c.Unlock()
		if found >= count {
			return
		}
		if time.Now().After(end) {
			fmt.Println("FAILED", what, found, "of", count)
			os.Exit(1)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func main() {
	rlog.SetLogLevel("error")
	servers := strings.Split(os.Args[1], ";")
	topic := os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	check(err, "count")
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer(servers), producer.WithGroupName("go-producer"), producer.WithRetry(3),
	)
	check(err, "producer")
	check(sender.Start(), "start of the producer")
	for number := 0; number < count; number++ {
		message := primitive.NewMessage(topic, []byte("go-"+strconv.Itoa(number)))
		message.WithTag("TagA").WithKeys([]string{"key-" + strconv.Itoa(number)})
		result, err := sender.SendSync(context.Background(), message)
		check(err, "send")
		if result.Status != primitive.SendOK {
			fmt.Println("FAILED send", result)
			os.Exit(1)
		}
	}
	batch := []*primitive.Message{}
	for number := count; number < count+10; number++ {
		batch = append(batch, primitive.NewMessage(topic, []byte("go-"+strconv.Itoa(number))).WithTag("TagA"))
	}
	_, err = sender.SendSync(context.Background(), batch...)
	check(err, "batch")
	check(sender.SendOneWay(context.Background(),
		primitive.NewMessage(topic, []byte("go-"+strconv.Itoa(count+10))).WithTag("TagA")), "oneway")
	fmt.Println("sent", count+11)

	all := &collected{bodies: map[string]int{}}
	reader, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName("go-"+topic),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
	)
	check(err, "consumer")
	err = reader.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA"},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, one := range messages {
				// One of them comes again.
				if all.add(string(one.Body)) == 1 && string(one.Body) == "go-3" {
					return consumer.ConsumeRetryLater, nil
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	check(err, "subscription")
	check(reader.Start(), "start of the consumer")
	all.wait(count+11, "consumption")
	fmt.Println("consumed", len(all.bodies))
	end := time.Now().Add(patience)
	for again := 0; again < 2 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		all.Lock()
		again = all.bodies["go-3"]
		all.Unlock()
	}
	fmt.Println("go-3 came", all.bodies["go-3"], "times")
	check(reader.Shutdown(), "end of the consumer")
	check(sender.Shutdown(), "end of the producer")

	pulled := &collected{bodies: map[string]int{}}
	puller, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName("go-pull-"+topic),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err, "pull consumer")
	check(puller.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}), "subscription")
	check(puller.Start(), "start of the pull consumer")
	end = time.Now().Add(patience)
	for len(pulled.bodies) < count+11 && time.Now().Before(end) {
		found, err := puller.Poll(context.Background(), time.Second)
		if err != nil {
			continue
		}
		for _, one := range found.GetMsgList() {
			pulled.add(string(one.Body))
		}
		puller.ACK(context.Background(), found, consumer.ConsumeSuccess)
	}
	names := []string{}
	for body := range pulled.bodies {
		names = append(names, body)
	}
	sort.Strings(names)
	fmt.Println("pulled", len(names))
	puller.Shutdown()
	os.Exit(0)
}
