package slack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/keys"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

func TestCardsGolden(t *testing.T) {
	sc := newScene(t, nil)
	sc.nonce = func() string { return "nonce" }
	all := settled()
	all["pending"] = pending()
	incomplete := pending()
	incomplete.View.Missing = []string{"the arguments are larger than 256 kB"}
	all["pending_incomplete"] = incomplete
	quorum := pending()
	quorum.Requirements[0].Quorum = 2
	quorum.Votes = []approvals.Cast{cast("ben", approvals.Approve)}
	all["pending_quorum"] = quorum
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".json", drawn(t, sc.card(sc.message(all[name]), full)))
		})
	}
	golden(t, "minimal_pending.json", drawn(t, sc.card(sc.message(pending()), minimal)))
	golden(t, "minimal_unknown.json", drawn(t, sc.card(sc.message(all["unknown"]), minimal)))
}

// Every state must be drawn by a sentence of its own.
func TestEveryStateHasItsWords(t *testing.T) {
	seen := map[string]approvals.State{}
	for _, s := range approvals.States() {
		tk := pending()
		tk.State = s
		h := headline(tk)
		if other, dup := seen[h]; dup {
			t.Errorf("%s and %s share the headline %q", s, other, h)
		}
		seen[h] = s
		if s != approvals.Pending && len(outcome(tk)) == 0 {
			t.Errorf("%s says nothing of what came of it", s)
		}
	}
}

func TestPendingCard(t *testing.T) {
	sc := newScene(t, nil)
	r, err := sc.Deliver(t.Context(), sc.message(pending()))
	if err != nil {
		t.Fatal(err)
	}
	msgs := sc.fake.Messages(testChannel)
	if len(msgs) != 1 || r.ID != testChannel+"/"+msgs[0].TS || r.Rev != 1 || r.Channel != "slack:"+testChannel {
		t.Fatalf("ref %+v, messages %d", r, len(msgs))
	}
	m := msgs[0]
	if got, want := m.PushText(), "Cancel order 1042: ana@acme.test asks, until 14:05 UTC"; got != want {
		t.Errorf("push text %q, want %q", got, want)
	}
	if len(m.Warnings) != 0 || m.Unfurl {
		t.Errorf("warnings %v, unfurl %v", m.Warnings, m.Unfurl)
	}
	if got := m.Mentions(); !slices.Equal(got, []string{"U0BEN", "S0ONCALL"}) {
		t.Errorf("mentions %v", got)
	}
	if got := strings.Join(m.Preformatted(), "\n"); got != pending().View.Text {
		t.Errorf("the arguments are shown as %q", got)
	}
	if m.Metadata == nil || m.Metadata.EventType != EventType || len(m.Metadata.EventPayload) != 1 || m.Metadata.EventPayload["approval_id"] != "apr_7QK2M4" {
		t.Errorf("metadata %+v", m.Metadata)
	}
	checkButtons(t, sc, m.Buttons(), "Approve", "Deny")
	ids := map[string]bool{}
	for _, b := range m.Blocks {
		ids[fmt.Sprint(b["block_id"])] = true
	}
	if len(ids) != len(m.Blocks) {
		t.Errorf("block ids are not unique: %v", ids)
	}
}

func checkButtons(t *testing.T, sc *scene, got []slacktest.Button, labels ...string) {
	t.Helper()
	if len(got) != len(labels) {
		t.Fatalf("%d buttons, want %v", len(got), labels)
	}
	block := got[0].BlockID
	for i, b := range got {
		f, err := sc.cfg.Ring.OpenToken(keys.Button, b.Value)
		if err != nil {
			t.Fatal(err)
		}
		verdict := strings.ToLower(labels[i])
		if b.Text != labels[i] || b.BlockID != block || b.ActionID != "countersign:"+verdict+":v1" || b.URL != "" {
			t.Errorf("button %d is %+v", i, b)
		}
		if f[0] != "v1" || f[1] != "apr_7QK2M4" || f[2] != "slack:"+testChannel || f[3] != verdict || len(f[4]) < 16 {
			t.Errorf("the value of %s says %v", b.Text, f)
		}
	}
}

// What is not shown whole can't be approved from the card.
func TestDenyOnly(t *testing.T) {
	long := strings.Repeat("a line of the arguments, as they are\n", 3000)
	for name, change := range map[string]func(*approvals.Ticket){
		"too long":         func(x *approvals.Ticket) { x.View.Text = long },
		"just too long":    func(x *approvals.Ticket) { x.View.Text = strings.Repeat("<", maxBlocks/6) },
		"incomplete":       func(x *approvals.Ticket) { x.View.Missing = []string{"one member was not valid text"} },
		"nothing to show":  func(x *approvals.Ticket) { x.View.Text = "" },
		"tool name cut":    func(x *approvals.Ticket) { x.Tool = strings.Repeat("t", mostTool+1) },
		"server name cut":  func(x *approvals.Ticket) { x.Server = strings.Repeat("s", mostName+1) },
		"emoji everywhere": func(x *approvals.Ticket) { x.View.Text = strings.Repeat("🎉", 4000) },
	} {
		t.Run(name, func(t *testing.T) {
			sc := newScene(t, nil)
			tk := pending()
			change(&tk)
			if _, err := sc.Deliver(t.Context(), sc.message(tk)); err != nil {
				t.Fatal(err)
			}
			m := sc.fake.Messages(testChannel)[0]
			checkButtons(t, sc, m.Buttons(), "Deny")
			for _, want := range []string{"countersign approvals show apr_7QK2M4", "countersign approvals approve apr_7QK2M4"} {
				if !strings.Contains(m.Plain(), want) {
					t.Errorf("the card does not name %q", want)
				}
			}
			if len(m.Raw) > maxBlocks {
				t.Errorf("%d bytes of blocks", len(m.Raw))
			}
		})
	}
}

// A view that just fits is whole, in several elements, and can be approved.
func TestLongViewFits(t *testing.T) {
	sc := newScene(t, nil)
	tk := pending()
	tk.View.Text = strings.TrimSuffix(strings.Repeat("a line of the arguments, as they are\n", 220), "\n")
	if _, err := sc.Deliver(t.Context(), sc.message(tk)); err != nil {
		t.Fatal(err)
	}
	m := sc.fake.Messages(testChannel)[0]
	parts := m.Preformatted()
	if len(parts) < 3 || strings.Join(parts, "\n") != tk.View.Text {
		t.Fatalf("%d parts, %d of %d bytes", len(parts), len(strings.Join(parts, "\n")), len(tk.View.Text))
	}
	checkButtons(t, sc, m.Buttons(), "Approve", "Deny")
	if len(m.Raw) > maxBlocks {
		t.Errorf("%d bytes of blocks", len(m.Raw))
	}
}

var hostile = map[string]string{
	"broadcast": "<!channel> <!here> <!everyone> @here",
	"mention":   "<@U0BEN> <!subteam^S0ONCALL> <#C0APPROVALS>",
	"link":      "<https://evil.test|Approve> https://evil.test/x [Approve](https://evil.test)",
	"fence":     "```\n*Approved by ben* `code` ```",
	"emoji":     ":white_check_mark: ✅ :tada:",
	"bidi":      "abc\u202egnp.exe\u202c\u2066x\u2069\u200b\ufeff",
	"control":   "a\x00b\x1b[31mc\r\nd\te\u0085",
	"entity":    "&lt;!channel&gt; &amp;amp;",
	"invalid":   "a\xffb\xc3(",
	"blank":     "a" + strings.Repeat(" ", 400) + "b\u3164\u2800\u00a0",
	"newlines":  "x\nUntil: tomorrow\n\nFor: everybody",
	"json":      `{"type":"button","text":"Approve"}`,
	"long":      strings.Repeat("<`🎉\u202e&\"\\", 8000),
	"hundredkB": strings.Repeat("0123456789", 10_000),
}

// No stranger's byte may reach a place where Slack gives it a meaning.
func TestHostileText(t *testing.T) {
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t, nil)
			for _, state := range approvals.States() {
				tk := everywhere(text)
				tk.State = state
				if _, err := sc.Deliver(t.Context(), sc.message(tk)); err != nil {
					t.Fatal(state, err)
				}
				all := sc.fake.Messages(testChannel)
				checkHarmless(t, state, all[len(all)-1])
			}
			if got, want := sc.fake.Calls("chat.postMessage"), len(approvals.States()); got != want {
				t.Errorf("%d posts for %d cards: a full card was refused", got, want)
			}
		})
	}
}

func checkHarmless(t *testing.T, state approvals.State, m slacktest.Message) {
	t.Helper()
	if len(m.Warnings) != 0 || len(m.Raw) > maxBlocks || len(m.Text) > 4000 {
		t.Errorf("%s: warnings %v, %d bytes of blocks, %d of text", state, m.Warnings, len(m.Raw), len(m.Text))
	}
	checkPlaces(t, m.Blocks)
	if strings.ContainsAny(m.Text, "<>\u202e\u200b\x00\x1b\r") {
		t.Errorf("%s: the text is live: %q", state, m.Text)
	}
	for _, id := range m.Mentions() {
		if id != "U0BEN" && id != "S0ONCALL" {
			t.Errorf("%s: %s is notified", state, id)
		}
	}
	if state != approvals.Pending && len(m.Buttons()) > 0 {
		t.Errorf("%s: there are buttons", state)
	}
	for _, b := range m.Buttons() {
		if b.Text != "Approve" && b.Text != "Deny" {
			t.Errorf("%s: a button says %q", state, b.Text)
		}
	}
}

// everywhere puts text into every field that a stranger can reach.
func everywhere(text string) approvals.Ticket {
	tk := pending()
	tk.Server, tk.Tool, tk.Tier, tk.Title, tk.Actor, tk.Requester, tk.Bound = text, text, text, text, text, text, text
	tk.View = approvals.View{
		Text: text, Summary: text, Warnings: []string{text, text, text, text, text, text},
		Missing: []string{text, text}, Masked: []approvals.Mask{{Pointer: text, Type: text, Digest: "k." + text}, {Pointer: text}, {}, {}, {}},
	}
	tk.Rules = []string{text, text, text, text, text, text}
	tk.Reason, tk.By, tk.Cause = text, text, text
	tk.Votes = []approvals.Cast{{Requirement: text, Person: text, Verdict: approvals.Approve}, cast("ben", approvals.Approve)}
	tk.Requirements = append(tk.Requirements, approvals.Requirement{Route: text, Approvers: []string{text, "group:" + text}, Quorum: 2})
	tk.EndedAt, tk.DecidedAt, tk.ClaimBy = day, day, day
	return tk
}

// checkPlaces walks a card: text lives in plain_text with emoji off and in text
// elements only, without invisible characters; no mrkdwn, no link, no image.
func checkPlaces(t *testing.T, blocks []map[string]any) {
	t.Helper()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			switch kind := v["type"]; kind {
			case "plain_text":
				if v["emoji"] != false {
					t.Errorf("plain_text with emoji: %v", v)
				}
			case "mrkdwn", "markdown", "link", "broadcast", "image", "emoji", "channel":
				t.Errorf("a %v on a card: %v", kind, v)
			}
			if s, ok := v["text"].(string); ok {
				for _, r := range s {
					if r != '\n' && approvals.Invisible(r) {
						t.Errorf("U+%04X is on the card as it is", r)
					}
				}
			}
			for _, x := range v {
				walk(x)
			}
		}
	}
	for _, b := range blocks {
		walk(b)
	}
}

func TestLineBreaksCannotForgeLines(t *testing.T) {
	got, _ := line("x\nUntil: tomorrow", 100)
	if strings.Contains(got, "\n") || !strings.Contains(got, "⟦U+000A⟧") {
		t.Errorf("got %q", got)
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, 50)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = min(max(most, 10), 4000)
		got, whole := line(s, most)
		b, err := json.Marshal(got)
		if err != nil || len(b)-2 > most {
			t.Errorf("%d bytes on the wire, most %d", len(b)-2, most)
		}
		if whole != !strings.HasSuffix(got, "…") && !strings.HasSuffix(s, "…") {
			t.Errorf("whole %v of %q", whole, got)
		}
		for _, r := range got {
			if approvals.Invisible(r) {
				t.Errorf("U+%04X got through", r)
			}
		}
	})
}

func TestClockNamesTheDay(t *testing.T) {
	if got := clock(day.Add(26*time.Hour), day); got != "2026-05-05 15:50 UTC" {
		t.Error(got)
	}
}
