// Load on NATS JetStream for comparison with LedgerMQ: one line of JSON on standard output.
//
//	natsload -url nats://127.0.0.1:4222 -mode sync|async -clients 2 -size 1024 -seconds 8 -replicas 1
//	natsload -mode pull|pullsync -messages 200000 ...
//
// sync waits for each acknowledgement; async keeps up to -pending publishes of each client in flight.
// pull publishes so many messages first; then its clients fetch 32 at a time of one durable consumer
// and acknowledge each of them. pullsync waits until the server has each batch's acknowledgements.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const fetched = 32

var pendingMax = flag.Int("pending", 512, "publishes of a client in flight, async")

type result struct {
	Mode     string  `json:"mode"`
	Clients  int     `json:"clients"`
	Size     int     `json:"size"`
	Replicas int     `json:"replicas"`
	Acked    int     `json:"acked"`
	Failed   int     `json:"failed"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"messages_per_second"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
}

type load struct {
	acked, failed int
	latencies     []float64
}

func main() {
	url := flag.String("url", "nats://127.0.0.1:4222", "server")
	mode := flag.String("mode", "sync", "sync or async")
	clients := flag.Int("clients", 1, "connections")
	size := flag.Int("size", 1024, "body in bytes")
	seconds := flag.Float64("seconds", 8, "duration")
	replicas := flag.Int("replicas", 1, "replicas of the stream")
	messages := flag.Int("messages", 100000, "messages that pull has published first")
	flag.Parse()

	createStream(*url, *replicas)
	if strings.HasPrefix(*mode, "pull") {
		fill(*url, *messages, *size)
	}
	loads := make([]load, *clients)
	var group sync.WaitGroup
	begin := time.Now()
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	for i := range loads {
		group.Add(1)
		go func(own *load) {
			defer group.Done()
			own.run(*url, *mode, make([]byte, *size), end)
		}(&loads[i])
	}
	group.Wait()
	report(*mode, *clients, *size, *replicas, time.Since(begin).Seconds(), loads)
}

func connect(url string) nats.JetStreamContext {
	connection, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	stream, err := connection.JetStream(nats.PublishAsyncMaxPending(*pendingMax))
	if err != nil {
		log.Fatal(err)
	}
	return stream
}

func createStream(url string, replicas int) {
	stream := connect(url)
	config := &nats.StreamConfig{
		Name: "BENCH", Subjects: []string{"bench.>"}, Replicas: replicas, Storage: nats.FileStorage,
	}
	var err error
	for range 50 {
		if _, err = stream.AddStream(config); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	log.Fatal(err)
}

func (own *load) run(url, mode string, body []byte, end time.Time) {
	stream := connect(url)
	if strings.HasPrefix(mode, "pull") {
		own.pull(stream, mode == "pullsync", end)
		return
	}
	if mode == "sync" {
		for time.Now().Before(end) {
			begin := time.Now()
			if _, err := stream.Publish("bench.a", body); err != nil {
				own.failed++
				continue
			}
			own.acked++
			own.latencies = append(own.latencies, float64(time.Since(begin).Microseconds())/1000)
		}
		return
	}
	for time.Now().Before(end) {
		if _, err := stream.PublishAsync("bench.a", body); err != nil {
			own.failed++
		} else {
			own.acked++
		}
	}
	<-stream.PublishAsyncComplete()
}

func fill(url string, messages, size int) {
	stream, body := connect(url), make([]byte, size)
	for range messages {
		if _, err := stream.PublishAsync("bench.a", body); err != nil {
			log.Fatal(err)
		}
	}
	<-stream.PublishAsyncComplete()
	consumer := &nats.ConsumerConfig{
		Durable: "workers", AckPolicy: nats.AckExplicitPolicy, MaxAckPending: messages,
	}
	if _, err := stream.AddConsumer("BENCH", consumer); err != nil {
		log.Fatal(err)
	}
}

func (own *load) pull(stream nats.JetStreamContext, waits bool, end time.Time) {
	consumer, err := stream.PullSubscribe("", "workers", nats.Bind("BENCH", "workers"))
	if err != nil {
		log.Fatal(err)
	}
	for time.Now().Before(end) {
		begin := time.Now()
		batch, err := consumer.Fetch(fetched, nats.MaxWait(200*time.Millisecond))
		if err != nil && err != nats.ErrTimeout {
			own.failed++
			continue
		}
		// Of a batch all acknowledgements are under way at once.
		errs := make([]error, len(batch))
		var group sync.WaitGroup
		for i, message := range batch {
			if !waits {
				errs[i] = message.Ack()
				continue
			}
			group.Add(1)
			go func() {
				defer group.Done()
				errs[i] = message.AckSync()
			}()
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				own.failed++
			} else {
				own.acked++
			}
		}
		if len(batch) > 0 {
			own.latencies = append(own.latencies, float64(time.Since(begin).Microseconds())/1000)
		}
	}
}

func report(mode string, clients, size, replicas int, seconds float64, loads []load) {
	sum := result{Mode: mode, Clients: clients, Size: size, Replicas: replicas, Seconds: seconds}
	var all []float64
	for _, own := range loads {
		sum.Acked += own.acked
		sum.Failed += own.failed
		all = append(all, own.latencies...)
	}
	sum.Rate = float64(sum.Acked) / seconds
	sort.Float64s(all)
	if len(all) > 0 {
		sum.P50 = all[len(all)/2]
		sum.P99 = all[len(all)*99/100]
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil {
		log.Fatal(err)
	}
}
