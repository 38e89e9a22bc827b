package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
)

// Beside a gate that serves, with a call that waits, the doctor finds nothing
// wrong and leaves it so: the call is still there, and runs once after the click.
func TestDoctorBesideAServingGate(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	got := call(g.client(testservers.Modern), testservers.Do{N: 1}, testservers.Extra{})
	card := r.cardOf(1)
	path := r.config("a")

	out, errs, code := countersign(within(t, 60*time.Second), nil, "doctor", "--config", path)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	told(t, out, "1 call waits for an answer", "a gate that tells people is running", "Slack knows us", "1 of 1 file verify",
		"judge: things 1, protocol 2025-11-25, 3 tools", "judge: no entry lists these, so they are denied: hidden_thing", ", 0 to put right.")
	// What whoever adopts a gate has to be able to say, each of it.
	told(t, out, "privileged calls go through the gate only: ", "identities are pinned: ", "provenance is available to rules: ",
		"a review is bound to the exact call: ", "the audit links planning, decision, execution and result: ", "policy versions are recorded and reversible: ")
	if _, _, code := countersign(within(t, 60*time.Second), nil, "doctor", "--config", path, "--strict", "--no-start"); code != 1 {
		t.Errorf("with --strict: exit %d", code)
	}
	if _, _, code := countersign(within(t, 60*time.Second), nil, "doctor", "--config", path+".none"); code != 2 {
		t.Errorf("without a configuration: exit %d", code)
	}
	out, _, _ = countersign(within(t, 60*time.Second), nil, "doctor", "--config", path, "--json")
	var d struct {
		Level    string
		Sections []struct {
			Name, Level string
			Findings    []struct{ Level, Text string }
		}
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.Level != "warn" || len(d.Sections) != 11 || d.Sections[0].Level == "" || len(d.Sections[0].Findings) == 0 {
		t.Errorf("%v: %s", err, out)
	}
	for _, secret := range []string{r.key, r.slack.BotToken, r.slack.SigningSecret(), deskSecret, hash(anaToken)} {
		if strings.Contains(out, secret) {
			t.Errorf("a secret is told: %s", out)
		}
	}

	if a := r.click(olgaSlack, card.TS, "approve"); a.Status != 200 {
		t.Fatalf("the click: %+v", a)
	}
	if res := await(t, got); res.IsError() || r.ran(1) != 1 || len(r.cards(1)) != 1 {
		t.Errorf("%s, ran %d times, %d cards", res.Result, r.ran(1), len(r.cards(1)))
	}
	g.stop()
	r.verify()
}

// A server that is what was pinned is said to be, and one whose tool has changed
// since is found, with the tool's name.
func TestDoctorComparesWithThePins(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Config: "pins: {file: pins.json, ask_every: 1s}\n"})
	path := r.config("a")
	ctx := within(t, 2*time.Minute)
	if out, _, code := countersign(ctx, nil, "doctor", "--config", path); code != 2 || !strings.Contains(out, "countersign policy pin") {
		t.Errorf("without the file: exit %d\n%s", code, out)
	}
	if out, errs, code := countersign(ctx, nil, "policy", "pin", "--config", path); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	out, _, code := countersign(ctx, nil, "doctor", "--config", path)
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	told(t, out, "judge: 3 of 3 tools are as agreed on", "identities are pinned: every server and tool is what the file of pins says")
	if err := r.upstream.ChangeTools(true); err != nil {
		t.Fatal(err)
	}
	out, _, code = countersign(ctx, nil, "doctor", "--config", path)
	if code != 2 {
		t.Errorf("with a changed tool: exit %d", code)
	}
	told(t, out, "judge: not what was agreed on, so held: do_thing", "countersign policy pin --diff", "judge: 2 of 3 tools are as agreed on")
}
