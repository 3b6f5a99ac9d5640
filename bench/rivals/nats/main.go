// Load on NATS JetStream for comparison with LedgerMQ: one line of JSON on standard output.
//
//	natsload -url nats://127.0.0.1:4222 -mode sync|async -clients 2 -size 1024 -seconds 8 -replicas 1
//
// sync waits for each acknowledgement; async keeps up to 512 publishes of each client in flight.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const pendingMax = 512

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
	flag.Parse()

	createStream(*url, *replicas)
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
	stream, err := connection.JetStream(nats.PublishAsyncMaxPending(pendingMax))
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
