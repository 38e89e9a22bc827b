package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Order is one order of the desk.
type Order struct {
	Item   string   `json:"item"`
	Status string   `json:"status"` // "open" or "cancelled"
	Notes  []string `json:"notes,omitempty"`
}

// State is the desk's file: its orders, and how often each tool has run. The
// counts are what a test or a reader believes in place of anybody's answer.
type State struct {
	Orders map[string]Order `json:"orders"`
	Ran    map[string]int   `json:"ran"`
}

// ReadState reads the desk's file. A desk that has not begun yet has the orders
// that every desk begins with.
func ReadState(path string) (State, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newState(), nil
	}
	if err != nil {
		return State{}, fmt.Errorf("the desk's file: %w", err)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, fmt.Errorf("the desk's file %s: %w", path, err)
	}
	return s, nil
}

func newState() State {
	return State{
		Orders: map[string]Order{
			"4417": {Item: "Espresso machine, 1 piece", Status: "open"},
			"4418": {Item: "Coffee beans, 12 bags", Status: "open"},
			"4502": {Item: "Paper filters, 3 boxes", Status: "open"},
		},
		Ran: map[string]int{},
	}
}

// desk changes the file, one tool at a time.
type desk struct {
	mu   sync.Mutex
	path string
}

// run counts the tool and lets f change the state; both are on disk before the
// tool answers, also when f refuses.
func (d *desk) run(tool string, f func(*State) (string, error)) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := ReadState(d.path)
	if err != nil {
		return "", err
	}
	if s.Ran == nil {
		s.Ran = map[string]int{}
	}
	s.Ran[tool]++
	said, refused := f(&s)
	if err := d.save(s); err != nil {
		return "", err
	}
	return said, refused
}

func (d *desk) save(s State) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(d.path), ".desk-*")
	if err != nil {
		return fmt.Errorf("saving the desk's file: %w", err)
	}
	defer os.Remove(f.Name()) // after the rename there is nothing to remove
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("saving the desk's file: %w", err)
	}
	return os.Rename(f.Name(), d.path)
}

func (d *desk) list() (string, error) {
	return d.run("list_orders", func(s *State) (string, error) {
		var lines []string
		for id, o := range s.Orders {
			lines = append(lines, fmt.Sprintf("%s: %s, %s", id, o.Item, o.Status))
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n"), nil
	})
}

func (d *desk) lookup(id string) (string, error) {
	return d.run("lookup_order", func(s *State) (string, error) {
		o, ok := s.Orders[id]
		if !ok {
			return "", noOrder(id)
		}
		out := fmt.Sprintf("Order %s: %s, %s", id, o.Item, o.Status)
		for _, n := range o.Notes {
			out += "\nNote: " + n
		}
		return out, nil
	})
}

func (d *desk) note(id, note string) (string, error) {
	return d.run("add_note", func(s *State) (string, error) {
		o, ok := s.Orders[id]
		if !ok {
			return "", noOrder(id)
		}
		o.Notes = append(o.Notes, note)
		s.Orders[id] = o
		return fmt.Sprintf("Order %s has a new note", id), nil
	})
}

func (d *desk) cancel(id string) (string, error) {
	return d.run("cancel_order", func(s *State) (string, error) {
		o, ok := s.Orders[id]
		switch {
		case !ok:
			return "", noOrder(id)
		case o.Status == "cancelled":
			return "", fmt.Errorf("order %s was cancelled before", id)
		}
		o.Status = "cancelled"
		s.Orders[id] = o
		return fmt.Sprintf("Order %s is cancelled", id), nil
	})
}

func noOrder(id string) error { return fmt.Errorf("no order %s", id) }
