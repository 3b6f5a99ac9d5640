// Command linearizability judges histories of clients of a group with Porcupine, queue by queue:
//
//	linearizability [-timeout 60s] [-draw FILE] HISTORY...
//
// The histories are the JSON lines of tests/process/history.py. For each queue it prints a line
// with its number, the verdict (Ok, Illegal, Unknown) and how many operations were judged. An
// Illegal one is drawn to FILE as a page for a browser.
//
// Exit status: 0 all queues are linearizable, 1 one is not, 2 the time was not enough to tell,
// 3 the histories cannot be read, or tell of no operation.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	statusIllegal = 1
	statusUnknown = 2
	statusInput   = 3

	lineSizeMax = 64 << 20
)

// line is one of tests/process/history.py.
type line struct {
	Kind    string   `json:"kind"`
	Process string   `json:"process"`
	Number  int      `json:"number"`
	Queue   int      `json:"queue"`
	First   int      `json:"first"`
	Values  []string `json:"values"`
	Offsets []int    `json:"offsets"`
	IsEnd   bool     `json:"is_end"`
	Start   int64    `json:"start"`
	End     int64    `json:"end"`
}

// history has the operations of each queue.
type history map[int][]porcupine.Operation

func (h history) add(queue int, input interface{}, call, end int64) {
	operation := porcupine.Operation{Input: input, Call: call, Return: end}
	h[queue] = append(h[queue], operation)
}

// take adds what one process has written.
func (h history) take(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	appends := map[int]line{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, lineSizeMax)
	for number := 1; lines.Scan(); number++ {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
		if err := h.takeLine(appends, one); err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
	for _, one := range appends {
		h.addUnknown(one)
	}
	return lines.Err()
}

// takeLine adds an operation once its end is known; appends holds those that are under way.
func (h history) takeLine(appends map[int]line, one line) error {
	if one.Kind == "read" {
		for row, value := range one.Values {
			h.add(one.Queue, found{value, one.First + row}, one.Start, one.End)
		}
		if one.IsEnd {
			h.add(one.Queue, ended{one.First + len(one.Values)}, one.Start, one.End)
		}
		return nil
	}
	if one.Kind == "append" {
		appends[one.Number] = one
		return nil
	}
	sent, isKnown := appends[one.Number]
	if !isKnown {
		return fmt.Errorf("outcome of number %d, which was not sent", one.Number)
	}
	delete(appends, one.Number)
	switch one.Kind {
	case "acked":
		if len(one.Offsets) != len(sent.Values) {
			return fmt.Errorf("%d offsets for %d values", len(one.Offsets), len(sent.Values))
		}
		for row, value := range sent.Values {
			h.add(sent.Queue, appended{value, one.Offsets[row]}, sent.Start, one.End)
		}
	case "unknown":
		h.addUnknown(sent)
	case "refused":
		// It must have done nothing: who reads its values reads what nobody has appended.
	default:
		return fmt.Errorf("unknown kind %q", one.Kind)
	}
	return nil
}

// addUnknown adds an append that may happen at any time after it was sent, or never.
func (h history) addUnknown(sent line) {
	for _, value := range sent.Values {
		h.add(sent.Queue, appended{value, unknown}, sent.Start, math.MaxInt64)
	}
}

// judge prints the verdict of each queue; the exit status.
func (h history) judge(timeout time.Duration, drawing string) int {
	until := time.Now().Add(timeout)
	queues := make([]int, 0, len(h))
	for queue := range h {
		queues = append(queues, queue)
	}
	sort.Ints(queues)
	status := 0
	for _, queue := range queues {
		operations := h[queue]
		model := queueModel(tell(operations))
		left := time.Until(until)
		verdict := porcupine.Unknown
		var info porcupine.LinearizationInfo
		// Zero would be no limit.
		if left > 0 {
			verdict, info = porcupine.CheckOperationsVerbose(model, operations, left)
		}
		fmt.Printf("queue %d: %s, %d operations\n", queue, verdict, len(operations))
		switch verdict {
		case porcupine.Ok:
		case porcupine.Illegal:
			status = statusIllegal
			if drawing != "" {
				if err := porcupine.VisualizePath(model, info, drawing); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		default:
			if status == 0 {
				status = statusUnknown
			}
		}
	}
	return status
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for all queues together")
	drawing := flag.String("draw", "", "where a queue that is not linearizable is drawn")
	flag.Parse()
	operations := history{}
	for _, path := range flag.Args() {
		if err := operations.take(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(statusInput)
		}
	}
	if len(operations) == 0 {
		fmt.Fprintln(os.Stderr, "no operations")
		os.Exit(statusInput)
	}
	os.Exit(operations.judge(*timeout, *drawing))
}
