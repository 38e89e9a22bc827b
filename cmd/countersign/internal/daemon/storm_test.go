package daemon

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// Reloads without a pause under load, each with another policy and now and then
// with another process of the upstream: what every one of the policies allows is
// answered, and runs once.
func TestReloadsInARow(t *testing.T) {
	const reloads, callers = 200, 4
	s := newScene(t)
	d, _ := s.reloader()
	over := make(chan struct{})
	var calls sync.WaitGroup
	ran := make([]int, callers)
	for i := range callers {
		c := s.client(d)
		calls.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				res, err := c.Call(within(t, 60*time.Second), "read_thing", fmt.Appendf(nil, `{"id":"%d-%d"}`, i, n), testservers.Extra{})
				if err != nil || res.Error != nil || res.IsError() {
					t.Errorf("%v %s %s", err, res.Error, res.Result)
					return
				}
				ran[i]++
			}
		})
	}
	for i := range reloads {
		s.write("policy.yaml", fmt.Sprintf("%s# %d\n", [...]string{goodPolicy, allowingPolicy}[i%2], i))
		if i%50 == 49 {
			s.Env = fmt.Sprint(i)
		}
		if err := d.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	calls.Wait()
	t.Logf("calls answered: %v", ran)
	if got := len(s.policies()); got != reloads+1 {
		t.Errorf("%d records of policies", got)
	}
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	if n := len(d.fleet.now); n != 1 {
		t.Errorf("%d upstreams", n)
	}
}

// A stop does not wait for a file that can't be read to its end, and what was read
// is not taken over after it.
func TestStopWhileAReloadReads(t *testing.T) {
	s := newScene(t)
	o := s.options(newAsked())
	reading, goOn := make(chan struct{}), make(chan struct{})
	o.Load = func() (*config.Config, error) {
		close(reading)
		<-goOn
		return s.config(), nil
	}
	d := s.start(o)
	was := d.rules.Load()
	s.write("policy.yaml", allowingPolicy)
	reloaded := make(chan error, 1)
	go func() { reloaded <- d.Reload(t.Context()) }()
	<-reading
	stopped := make(chan struct{})
	go func() { s.stop(d); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(60 * time.Second):
		t.Error("the stop waits for the reload")
	}
	close(goOn)
	if err := <-reloaded; !errors.Is(err, errStopped) {
		t.Errorf("the reload: %v", err)
	}
	<-stopped
	if d.rules.Load() != was {
		t.Error("it was taken over after the stop")
	}
}
