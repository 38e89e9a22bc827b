package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/notifier/slacktest"
)

// A secret among the arguments reaches the upstream as it was sent and is found
// nowhere else: not on a card or in any request to Slack, not in a log, on the
// ledger, in the operators' output or in Redis, neither as it is nor as a plain
// digest.
func TestMaskedArgument(t *testing.T) {
	t.Parallel()
	const (
		canary = "CANARY-kT9vQ2mX7pLw4sZ8"
		second = "CANARY-by-pointer-0042"
		third  = "CANARY-in-a-list-99"
	)
	r := newRig(t, rigOptions{Hold: time.Second, Policy: strings.Replace(plain, `title: "Do thing {n}"`, `title: "Do thing {n} with {api_key} and {free}", mask: [/free]`, 1)})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	// In text and beside its name, too; and in what can't be read, which is counted.
	args := fmt.Sprintf(`{"n":1, "api_key":%q,"free":%q,"note":"plain words","headers":{"Authorization":"Bearer %s","list":[{"password":%q}]},`+
		`"cmd":"PASSWORD=%s curl -H 'X-Api-Key: %s' x","argv":["--token",%q],"json":"{\"secret\":\"%s\"}"}`,
		canary, second, canary, third, canary, canary, canary, canary)
	for _, unread := range []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do_thing","arguments":{"a":"` + canary + `","a":1}}}`, canary, `{"` + canary + `":`} {
		if res, err := c.Send(within(t, 20*time.Second), []byte(unread), testservers.Extra{}); err != nil || strings.Contains(string(res.Body), "CANARY") {
			t.Errorf("%v: %s", err, res.Body)
		}
	}
	id := waiting(t, send(t, c, args, testservers.Extra{}))
	card := r.card()
	told(t, card.Plain(), "Do thing 1", "plain words", "/api_key", "/free", "/headers/Authorization", "/headers/list/0/password")
	var spoken strings.Builder
	for _, do := range [][]string{{"list"}, {"show", id}, {"--json", "list", "--all"}, {"--json", "show", id}, {"approve", "--yes", id}, {"show", id}} {
		out, code := g.operate(do...)
		if code != 0 {
			t.Errorf("%v: exit %d: %s", do, code, out)
		}
		spoken.WriteString(out)
	}
	told(t, spoken.String(), "plain words", "masked: /api_key (string, 25 bytes, digest ")
	inRedis := r.everything()
	if len(inRedis) < 1000 {
		t.Fatalf("Redis has only %d bytes of it", len(inRedis))
	}
	if res := comeBack(t, c, id); !runs(res) {
		t.Errorf("the caller got %s", res.Body)
	}
	r.settled(card.TS, "It ran")
	r.ended(id, "approval_resolved", 3)
	if ran := r.upstream.Executions(); len(ran) != 1 || string(ran[0].Args) != args {
		t.Errorf("the upstream received %+v", ran)
	}
	places := map[string]string{"the operators' output": spoken.String(), "Redis": inRedis, "Redis afterwards": r.everything(), "the log": g.stderr.String(), "Slack": r.spoken()}
	metrics, err := http.Get(g.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Body.Close()
	counted, err := io.ReadAll(metrics.Body)
	if err != nil || len(counted) < 200 {
		t.Fatalf("the metrics have only %d bytes of it, %v", len(counted), err)
	}
	places["the metrics"] = string(counted)
	g.stop() // what is said at the end counts, too
	places["the log of the stop"] = g.stderr.String()
	places["the gate's files"] = files(t, r.dir)
	for where, text := range places {
		for _, secret := range []string{canary, second, third, "Bearer CANARY"} {
			sum := sha256.Sum256([]byte(secret))
			quotedSum := sha256.Sum256([]byte(quoted(secret)))
			for _, form := range []string{
				secret, base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret)),
				string(sum[:]), hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:]), base64.RawURLEncoding.EncodeToString(sum[:]),
				hex.EncodeToString(quotedSum[:]), base64.RawURLEncoding.EncodeToString(quotedSum[:]),
			} {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("%s has %q as %q: …%s…", where, secret, form, text[max(0, i-60):min(len(text), i+60)])
				}
			}
		}
		if strings.Contains(text, "CANARY") {
			t.Errorf("%s has a part of a secret", where)
		}
	}
	r.verify()
}

// spoken is all that was ever sent to Slack.
func (r *rig) spoken() string {
	var b strings.Builder
	for _, c := range r.slack.Requests("") {
		fmt.Fprintf(&b, "%+v\n", c)
	}
	for _, m := range r.slack.Messages(channel) {
		fmt.Fprintf(&b, "%s\n", quoted(m))
	}
	return b.String()
}

// everything is all that Redis holds of the rig's namespace.
func (r *rig) everything() string {
	r.t.Helper()
	ctx, db := within(r.t, 30*time.Second), r.redis.Client()
	var b strings.Builder
	it := db.Scan(ctx, 0, "*"+r.namespace+"*", 1000).Iterator()
	for it.Next(ctx) {
		fmt.Fprintf(&b, "%s\n%s\n", it.Val(), r.valueOf(ctx, db, it.Val()))
	}
	if err := it.Err(); err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

func (r *rig) valueOf(ctx context.Context, db *redis.Client, key string) string {
	r.t.Helper()
	var v any
	kind, err := db.Type(ctx, key).Result()
	if err == nil {
		switch kind {
		case "none": // gone meanwhile
		case "string":
			v, err = db.Get(ctx, key).Result()
		case "hash":
			v, err = db.HGetAll(ctx, key).Result()
		case "list":
			v, err = db.LRange(ctx, key, 0, -1).Result()
		case "set":
			v, err = db.SMembers(ctx, key).Result()
		case "zset":
			v, err = db.ZRange(ctx, key, 0, -1).Result()
		case "stream":
			v, err = db.XRange(ctx, key, "-", "+").Result()
		default:
			r.t.Fatalf("%s is a %s, which this test can't read", key, kind)
		}
	}
	if err != nil {
		r.t.Fatalf("reading %s: %v", key, err)
	}
	return fmt.Sprint(v)
}

// files are all bytes below a directory.
func files(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		b.WriteString(path + "\n" + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What doesn't fit on a card can't be allowed from it, only denied; the whole of
// it is printed by the operators' command, which then runs it, every byte.
func TestTooBigForACard(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	g := r.start("a", "")
	c := g.client(testservers.Legacy)
	lines := make([]string, 2000)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d of the letter", i)
	}
	args := `{"n":1,"letter":` + quoted(strings.Join(lines, " / ")) + `,"last":"the very end"}`
	got := make(chan answer, 1)
	go func() {
		res, err := c.Call(within(t, 60*time.Second), "do_thing", json.RawMessage(args), testservers.Extra{})
		got <- answer{res, err}
	}()
	card := r.cardOf(1)
	id := asked{card: card}.id()
	if b := card.Buttons(); len(b) != 1 || b[0].Text != "Deny" {
		t.Errorf("buttons: %+v", b)
	}
	told(t, card.Plain(), "Not all of it is shown", "countersign approvals show "+id, "countersign approvals approve "+id)
	if strings.Contains(card.Plain(), "the very end") && strings.Contains(card.Plain(), lines[1999]) {
		t.Error("all of it is on the card after all")
	}
	if x := r.click(olgaSlack, card.TS, "approve"); !errors.Is(x.Err, slacktest.ErrNoButton) {
		t.Errorf("%+v", x)
	}
	out, code := g.operate("show", id)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	told(t, out, strings.Join(lines, " / "), "the very end")
	r.judge(0, "before anybody agreed")
	if out, code := g.operate("approve", "--yes", id); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if res := await(t, got); !runs(res) {
		t.Errorf("the caller got %s", res.Body)
	}
	r.settled(card.TS, "Approved", "olga", "It ran")
	if ran := r.upstream.Executions(); len(ran) != 1 || string(ran[0].Args) != args {
		t.Errorf("%d runs, or not the bytes that were shown", len(ran))
	}

	// The one button that is there works.
	args = strings.Replace(args, `"n":1`, `"n":2`, 1)
	go func() {
		res, err := c.Call(within(t, 60*time.Second), "do_thing", json.RawMessage(args), testservers.Extra{})
		got <- answer{res, err}
	}()
	card = r.cardOf(2)
	if x := r.click(oskarSlack, card.TS, "deny"); x.Status != 200 {
		t.Fatalf("%+v", x)
	}
	if res := await(t, got); res.Approval().Status != "denied" {
		t.Errorf("the caller got %s", res.Body)
	}
	r.settled(card.TS, "Denied", "oskar")
	r.judge(1, "in the end")
	r.verify()
}
