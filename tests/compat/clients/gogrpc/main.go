// RocketMQ's gRPC client in Go: one step a line comes in, its outcome goes out (python_grpc_client.py).
//
//	gogrpc ENDPOINTS [--key K --secret S] [--tls]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// A step, with all that one of them may have.
type step struct {
	Step       string
	Topic      string
	Topics     []string
	Body       string
	Tag        string
	Keys       string
	Group      string
	Expression string
	Sql        string
	DelayS     float64 `json:"delay_s"`
	Properties map[string]string
	How        string
	WaitS      float64 `json:"wait_s"`
	Count      int32
	InvisibleS float64 `json:"invisible_s"`
	Seconds    float64
	Id         string
	Fails      int
}

type outcome map[string]any

type client struct {
	endpoints    string
	credentials  credentials.SessionCredentials
	producer     rmq.Producer
	consumer     rmq.SimpleConsumer
	opened       []interface{ GracefulStop() error }
	transactions []rmq.Transaction
	received     map[string]*rmq.MessageView
	asked        chan outcome
	consumed     chan outcome
}

func seconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Second))
}

func (c *client) config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: c.endpoints, ConsumerGroup: group, Credentials: &c.credentials}
}

func message(s step) *rmq.Message {
	made := &rmq.Message{Topic: s.Topic, Body: []byte(s.Body)}
	if s.Tag != "" {
		made.SetTag(s.Tag)
	}
	if s.Keys != "" {
		made.SetKeys(s.Keys)
	}
	if s.Group != "" {
		made.SetMessageGroup(s.Group)
	}
	if s.DelayS != 0 {
		made.SetDelayTimestamp(time.Now().Add(seconds(s.DelayS)))
	}
	for name, value := range s.Properties {
		made.AddProperty(name, value)
	}
	return made
}

func subscription(s step) map[string]*rmq.FilterExpression {
	filter := rmq.SUB_ALL
	if s.Expression != "" {
		filter = rmq.NewFilterExpression(s.Expression)
	} else if s.Sql != "" {
		filter = rmq.NewFilterExpressionWithType(s.Sql, rmq.SQL92)
	}
	return map[string]*rmq.FilterExpression{s.Topic: filter}
}

func (c *client) check(message *rmq.MessageView) rmq.TransactionResolution {
	body := string(message.GetBody())
	c.asked <- outcome{"body": body, "properties": message.GetProperties()}
	if strings.HasSuffix(body, ":commit") {
		return rmq.COMMIT
	}
	return rmq.ROLLBACK
}

func (c *client) start(s step) (outcome, error) {
	producer, err := rmq.NewProducer(c.config(""), rmq.WithTopics(s.Topics...),
		rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: c.check}))
	if err != nil {
		return nil, err
	}
	c.producer = producer
	c.opened = append(c.opened, producer)
	return outcome{}, producer.Start()
}

func receipt(receipts []*rmq.SendReceipt, err error) (outcome, error) {
	if err != nil {
		return nil, err
	}
	return outcome{"id": receipts[0].MessageID, "offset": receipts[0].Offset}, nil
}

func (c *client) half(s step) (outcome, error) {
	transaction := c.producer.BeginTransaction()
	sent, err := receipt(c.producer.SendWithTransaction(context.Background(), message(s), transaction))
	c.transactions = append(c.transactions, transaction)
	return sent, err
}

func (c *client) end(s step) (outcome, error) {
	transaction := c.transactions[0]
	c.transactions = c.transactions[1:]
	if s.How == "commit" {
		return outcome{}, transaction.Commit()
	}
	return outcome{}, transaction.RollBack()
}

func next(from chan outcome, waitS float64) (outcome, error) {
	select {
	case one := <-from:
		return one, nil
	case <-time.After(seconds(waitS)):
		return nil, errors.New("nothing came")
	}
}

func (c *client) consume(s step) (outcome, error) {
	consumer, err := rmq.NewSimpleConsumer(c.config(s.Group), rmq.WithSimpleAwaitDuration(2*time.Second),
		rmq.WithSimpleSubscriptionExpressions(subscription(s)))
	if err != nil {
		return nil, err
	}
	c.consumer = consumer
	c.opened = append(c.opened, consumer)
	return outcome{}, consumer.Start()
}

func (c *client) receive(s step) (outcome, error) {
	found, err := c.consumer.Receive(context.Background(), s.Count, seconds(s.InvisibleS))
	var status *rmq.ErrRpcStatus
	// That there is none is an error to it.
	if errors.As(err, &status) && status.Code == 40401 {
		err = nil
	}
	messages := []outcome{}
	for _, one := range found {
		c.received[one.GetMessageId()] = one
		messages = append(messages, outcome{
			"id": one.GetMessageId(), "body": string(one.GetBody()), "tag": one.GetTag(),
			"keys": one.GetKeys(), "attempt": one.GetDeliveryAttempt(), "group": one.GetMessageGroup(),
			"properties": one.GetProperties(),
		})
	}
	return outcome{"messages": messages}, err
}

func (c *client) push(s step) (outcome, error) {
	var lock sync.Mutex
	failed := map[string]int{}
	consume := func(message *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		failed[message.GetMessageId()]++
		if failed[message.GetMessageId()] <= s.Fails {
			return rmq.FAILURE
		}
		c.consumed <- outcome{"body": string(message.GetBody()), "attempt": message.GetDeliveryAttempt()}
		return rmq.SUCCESS
	}
	consumer, err := rmq.NewPushConsumer(c.config(s.Group), rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(subscription(s)),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	if err != nil {
		return nil, err
	}
	c.opened = append(c.opened, consumer)
	return outcome{}, consumer.Start()
}

func (c *client) stop() (outcome, error) {
	var failed error
	for _, one := range c.opened {
		failed = errors.Join(failed, one.GracefulStop())
	}
	c.opened = nil
	return outcome{}, failed
}

func (c *client) outcome(s step) (outcome, error) {
	switch s.Step {
	case "start":
		return c.start(s)
	case "send":
		return receipt(c.producer.Send(context.Background(), message(s)))
	case "half":
		return c.half(s)
	case "end":
		return c.end(s)
	case "checked":
		return next(c.asked, s.WaitS)
	case "consume":
		return c.consume(s)
	case "receive":
		return c.receive(s)
	case "ack":
		return outcome{}, c.consumer.Ack(context.Background(), c.received[s.Id])
	case "invisible":
		return outcome{}, c.consumer.ChangeInvisibleDuration(c.received[s.Id], seconds(s.Seconds))
	case "push":
		return c.push(s)
	case "pushed":
		return next(c.consumed, s.WaitS)
	case "stop":
		return c.stop()
	}
	return nil, fmt.Errorf("no such step: %s", s.Step)
}

func main() {
	made := client{
		endpoints: os.Args[1], received: map[string]*rmq.MessageView{},
		asked: make(chan outcome, 1000), consumed: make(chan outcome, 1000),
	}
	rmq.EnableSsl = false
	for number, word := range os.Args {
		switch word {
		case "--tls":
			rmq.EnableSsl = true
		case "--key":
			made.credentials.AccessKey = os.Args[number+1]
		case "--secret":
			made.credentials.AccessSecret = os.Args[number+1]
		}
	}
	lines := json.NewDecoder(bufio.NewReader(os.Stdin))
	for lines.More() {
		var asked step
		if err := lines.Decode(&asked); err != nil {
			panic(err)
		}
		told, err := made.outcome(asked)
		if err != nil {
			told = outcome{"error": fmt.Sprintf("%T", err), "reason": err.Error()}
		}
		line, err := json.Marshal(told)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
