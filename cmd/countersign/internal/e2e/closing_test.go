package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// Five calls of one agent that people deny one after the other, whoever they are and
// whichever gate it asks, end the asking for a while; nothing else ends. The ledger
// says so, and the cards don't.
func TestFiveDenialsEndTheAsking(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	a, b := r.start("a", ""), r.start("b", "")
	agents := []*testservers.HTTP{a.client(testservers.Legacy), b.client(testservers.Modern)}
	ask := func(n int) testservers.Reply {
		t.Helper()
		return send(t, agents[n%2], string(testservers.Do{N: n}.Args()), testservers.Extra{})
	}
	waiting(t, ask(100))
	last := ""
	for n := range 5 {
		last = waiting(t, ask(n))
		card := r.cardOf(n)
		if c := r.click([]string{olgaSlack, oskarSlack}[n%2], card.TS, "deny"); c.Status != 200 {
			t.Fatalf("the click: %+v", c)
		}
		told(t, r.settled(card.TS, "Denied").Plain(), "Denied")
	}
	closed := func(n int) {
		t.Helper()
		no := ask(n)
		if no.Code() != -32602 || no.Reason() != "review_closed" {
			t.Fatalf("call %d: %s %s", n, no.Result, no.Error)
		}
		told(t, string(no.Error), "said no", "retry_after_ms")
		if cards := r.cards(n); len(cards) != 0 {
			t.Errorf("there is a card: %+v", cards)
		}
	}
	closed(5)
	closed(6)

	// On the ledger: whose, how many, by whom, until when.
	rec := r.ended(last, "review_closed", 1)[0]
	approval, _ := rec["approval"].(map[string]any)
	until, err := time.Parse(time.RFC3339Nano, fmt.Sprint(approval["expires"]))
	if rec["actor"] != "ana@acme.test" || rec["reason"] != "denials_5" || approval["by"] != "olga" || err != nil ||
		time.Until(until) < 13*time.Minute || time.Until(until) > 16*time.Minute {
		t.Errorf("%v, %v", rec, err)
	}

	// What needs nobody runs, what waits can be agreed to, and others may ask.
	res, err := agents[0].Call(within(t, 20*time.Second), "read_thing", json.RawMessage(`{"id":"1"}`), testservers.Extra{})
	if err != nil || res.Error != nil || res.IsError() {
		t.Errorf("an allowed call: %v, %s %s", err, res.Result, res.Error)
	}
	waiting(t, send(t, a.client(testservers.Legacy, botToken), string(testservers.Do{N: 7}.Args()), testservers.Extra{}))
	card := r.cardOf(100)
	if c := r.click(olgaSlack, card.TS, "approve"); c.Status != 200 {
		t.Fatalf("the click: %+v", c)
	}
	r.settled(card.TS, "Approved")
	if res := ask(100); res.IsError() || r.ran(100) != 1 {
		t.Errorf("what was approved: %s %s, and it ran %d times", res.Result, res.Error, r.ran(100))
	}
	closed(8) // a yes ends the row, not the time

	// Its time over, which is brought about where it is kept, people are asked again.
	key := "{" + r.namespace + "}:dn:ana@acme.test"
	if err := r.redis.Client().HSet(within(t, 20*time.Second), key, "until", time.Now().Add(-time.Second).UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	waiting(t, ask(8))
	r.cardOf(8)
	r.verify()
}

// Arguments that the server's schema refuses are the agent's to mend: no card is made
// of them.
func TestArgumentsThatDoNotFit(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Hold: time.Second})
	c := r.start("a", "").client(testservers.Legacy)
	for args, pointer := range map[string]string{
		`{"n":"1"}`: "/n", `{"n":1.5}`: "/n", `{"n":9007199254740994}`: "/n", `{"n":1e400}`: "/n",
		`{"n":1,"headers":{"list":[{"password":"x"},7]}}`: "/headers/list/1",
	} {
		no := send(t, c, args, testservers.Extra{})
		if no.Code() != -32602 || no.Reason() != "invalid_arguments" {
			t.Errorf("%s: %s %s", args, no.Result, no.Error)
		}
		told(t, string(no.Error), `"pointer":"`+pointer+`"`)
	}
	waiting(t, send(t, c, `{"n":1.0}`, testservers.Extra{}))
	if cards := r.slack.Messages(channel); len(cards) > 1 {
		t.Errorf("%d cards", len(cards))
	}
	r.verify()
}
