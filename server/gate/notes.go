package gate

import (
	"encoding/json"
	"slices"
	"sync"
)

// notes pass an upstream's progress to all who wait for one run. A slow listener
// misses some; the later ones tell it more.
type notes struct {
	mu        sync.Mutex
	listeners []chan json.RawMessage
}

// listen returns what is passed from now on, until leave is called.
func (n *notes) listen() (news <-chan json.RawMessage, leave func()) {
	ch := make(chan json.RawMessage, 32)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners = append(n.listeners, ch)
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.listeners = slices.DeleteFunc(n.listeners, func(c chan json.RawMessage) bool { return c == ch })
	}
}

func (n *notes) pass(params []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ch := range n.listeners {
		select {
		case ch <- params:
		default:
		}
	}
}
