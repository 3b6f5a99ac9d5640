package main

import (
	"hash/maphash"

	"github.com/anishathalye/porcupine"
)

// unknown is the offset of an append of which nobody was told where it is, or whether it is.
const unknown = -1

// appended is the input and, with its offset, the output of an append of one value to one queue.
type appended struct {
	value  string
	offset int
}

// found is a read: value is at offset.
type found struct {
	value  string
	offset int
}

// ended is a read: the queue has exactly length values.
type ended struct {
	length int
}

// log is a queue's content: a value behind an older log, which is never changed. A nil log is empty.
//
// jump leads to an ancestor so that at needs a logarithmic number of steps (Myers, "An
// applicative random-access stack", 1983).
type log struct {
	length int
	value  string
	hash   uint64
	parent *log
	jump   *log
}

var seed = maphash.MakeSeed()

func (l *log) len() int {
	if l == nil {
		return 0
	}
	return l.length
}

func (l *log) sum() uint64 {
	if l == nil {
		return 0
	}
	return l.hash
}

func (l *log) with(value string) *log {
	var hash maphash.Hash
	hash.SetSeed(seed)
	hash.WriteString(value)
	longer := &log{length: l.len() + 1, value: value, parent: l}
	longer.hash = (l.sum() ^ hash.Sum64()) * 0x9E3779B97F4A7C15
	longer.jump = l
	if l != nil && l.jump != nil && l.length-l.jump.len() == l.jump.len()-l.jump.jump.len() {
		longer.jump = l.jump.jump
	}
	return longer
}

// at is the value at an offset, which must be less than the length.
func (l *log) at(offset int) string {
	for l.length != offset+1 {
		if l.jump.len() > offset {
			l = l.jump
		} else {
			l = l.parent
		}
	}
	return l.value
}

func (l *log) equals(other *log) bool {
	if l.len() != other.len() || l.sum() != other.sum() {
		return false
	}
	for l != other {
		if l.value != other.value {
			return false
		}
		l, other = l.parent, other.parent
	}
	return true
}

// told is what the whole history of a queue tells of its content.
//
// It only spares the search what cannot succeed: values are unique, so that one that was read
// somewhere was appended there and nowhere else; and one that was never read can only be where
// nobody has looked.
type told struct {
	values  map[int]string
	offsets map[string]int
	length  int
}

func tell(operations []porcupine.Operation) told {
	all := told{values: map[int]string{}, offsets: map[string]int{}}
	note := func(value string, offset int) {
		all.values[offset] = value
		all.offsets[value] = offset
		if offset >= all.length {
			all.length = offset + 1
		}
	}
	for _, operation := range operations {
		switch input := operation.Input.(type) {
		case appended:
			if input.offset != unknown {
				note(input.value, input.offset)
			}
		case found:
			note(input.value, input.offset)
		case ended:
			if input.length > all.length {
				all.length = input.length
			}
		}
	}
	return all
}

// queueModel is an append-only log: an append puts its value at the end and is told where that is;
// one with an unknown outcome did that, or nothing.
func queueModel(all told) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{(*log)(nil)} },
		Step: func(state, input, _ interface{}) []interface{} {
			return step(all, state.(*log), input)
		},
		Equal: func(one, other interface{}) bool { return one.(*log).equals(other.(*log)) },
		Hash:  func(state interface{}) uint64 { return state.(*log).sum() },
	}
	return model.ToModel()
}

func step(all told, content *log, input interface{}) []interface{} {
	same := []interface{}{content}
	switch operation := input.(type) {
	case appended:
		offset, isTold := operation.offset, true
		if offset == unknown {
			offset, isTold = all.offsets[operation.value]
		}
		if isTold {
			if offset != content.len() {
				return nil
			}
			return []interface{}{content.with(operation.value)}
		}
		_, isTaken := all.values[content.len()]
		if isTaken || content.len() >= all.length {
			return same
		}
		return append(same, content.with(operation.value))
	case found:
		if operation.offset < content.len() && content.at(operation.offset) == operation.value {
			return same
		}
	case ended:
		if operation.length == content.len() {
			return same
		}
	}
	return nil
}
