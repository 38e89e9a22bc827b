package gate

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/server/provenance"
	"github.com/countersign-mcp/countersign/server/upstream"
)

// One tool of each tier, a rule that asks for labels, and one of the rows' own.
const missingPolicy = `version: 2
tools:
  desk/echo: read
  desk/echo_note: {tier: write, args: {n: {type: integer, max: 5}}}
  desk/cancel_order: destructive
  desk/hidden_tool: deny
rules:
  - {id: labels, effect: deny, when: '"session:never" in labels("")', reason: never}
  - {id: row, effect: deny, when: 'false || args.n > 1000', reason: never}
routes:
  default: {channels: [link:ben], approvers: [ben], allow_requester: false}
`

const tooLong = `size(args.l.map(a, args.l.map(b, args.l.map(c, args.l)))) > 100000`

// missing takes one thing away.
var missing = map[string]func(b *bench){
	"Redis can't be reached": func(b *bench) { b.mini.Close() },
	"the ledger can't be written": func(b *bench) {
		b.book.mu.Lock()
		defer b.book.mu.Unlock()
		b.book.refuse = func(ledger.Record) bool { return true }
	},
	"labels of sessions can't be read or written": func(b *bench) {
		down := func(func() error) error { return errors.Join(approvals.StoreUnavailable, errors.New("down")) }
		b.calls.on("Labels", down)
		b.calls.on("AddLabels", down)
	},
	"stored labels do not verify": func(b *bench) {
		b.sessions.Add(b.t.Context(), ana.ID, "s", []string{"session:model"})
		for _, key := range b.mini.Keys() {
			if strings.Contains(key, "}:lb:") {
				b.mini.HSet(key, "another field", "another hand's")
			}
		}
	},
	"the upstream does not list its tools": func(b *bench) {
		down, err := upstream.New(upstream.Config{Name: "desk", Command: []string{"/nonexistent/server"}}, b.log)
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { down.Close() })
		st := b.stateOf(missingPolicy)
		st.Upstreams["desk"] = down
		b.Load(st)
	},
	"no notifier is alive": func(b *bench) {
		b.calls.on("NotifierAlive", func(func() error) error { return nil })
	},
	"a rule asks for what the call does not have": func(b *bench) {
		b.Load(b.stateOf(strings.Replace(missingPolicy, "false || args.n > 1000", "args.absent > 1000", 1)))
	},
	"a rule takes too long": func(b *bench) {
		b.Load(b.stateOf(strings.Replace(missingPolicy, "false || args.n > 1000", tooLong, 1)))
	},
}

// rows reads the table of the page that says what closes.
func missingRows(t *testing.T) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| missing | read | write | destructive |\n|---|---|---|---|\n")
	if !ok {
		t.Fatal("the page has no such table")
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) != len(missing) {
		t.Errorf("the page has %d rows, the test %d", len(rows), len(missing))
	}
	return rows
}

// Each cell of that table is true of real parts. What is denied by name or by a
// typed argument is denied in each row, too.
func TestWhatHappensWhenSomethingIsMissing(t *testing.T) {
	args := `{"n":1,"l":[` + strings.TrimSuffix(strings.Repeat("0,", 60), ",") + `]}`
	for _, row := range missingRows(t) {
		take := missing[row[0]]
		if take == nil || len(row) != 4 {
			t.Errorf("nothing takes away: %v", row)
			continue
		}
		for i, tool := range []string{"echo", "echo_note", "cancel_order"} {
			t.Run(row[0]+"/"+tool, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, settings(func(s *Settings) { s.Hold = time.Millisecond }))
				b.Load(b.stateOf(missingPolicy))
				take(b)
				a := b.Call(t.Context(), in("s", req(ana, tool, args)))
				want, unknown := strings.CutSuffix(row[i+1], "; unknown")
				if reason, ok := strings.CutPrefix(want, "refused: "); ok {
					code := codeInternal
					if slices.Contains([]string{"policy_denied", "no_notifier"}, reason) {
						code = codeParams
					}
					wantRefusal(t, a, code, reason)
				} else if s := read(t, a); s.IsError != (want == "asks") || want == "asks" && s.status() != "pending" {
					t.Errorf("got %v, want %s", s, want)
				}
				if ran := b.dir.Calls() != nil; ran != (want == "runs") {
					t.Errorf("it ran: %v", ran)
				}
				if recs := b.records(); unknown && !slices.ContainsFunc(recs, func(r ledger.Record) bool {
					return r.Event == ledger.Decision && slices.Contains(r.Labels, provenance.Unknown)
				}) {
					t.Errorf("the session was not judged as unknown: %v", recs)
				}
				for _, no := range []Request{in("s", req(ana, "hidden_tool", `{}`)), in("s", req(ana, "echo_note", `{"n":6}`))} {
					if a := b.Call(t.Context(), no); a.Error == nil {
						t.Errorf("%s is not denied: %s", no.Name, a.Result)
					}
				}
			})
		}
	}
}
