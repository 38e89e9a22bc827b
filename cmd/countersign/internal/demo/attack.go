package demo

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Attack parks a call and plays the attacks against it, before and after a
// person approves it. Each prints a line. The error says how many succeeded;
// that the call ran exactly once in the end is one of them.
func Attack(ctx context.Context, p Parts) error {
	ctx, cancel := context.WithTimeout(ctx, p.storyTime())
	defer cancel()
	a, err := connect(ctx, p.MCPURL, p.Token)
	if err != nil {
		return err
	}
	defer a.close()
	other, err := connect(ctx, p.MCPURL, p.OtherToken)
	if err != nil {
		return err
	}
	defer other.close()
	ended, l, err := p.park(ctx, a)
	if err != nil {
		return err
	}
	k := &attacker{p: p, l: l, agent: a, other: other}
	if err := k.all(ctx, k.before()); err != nil {
		return err
	}
	if err := k.approve(ctx); err != nil {
		return err
	}
	end := <-ended // finish ends with ctx
	if end.err != nil {
		return end.err
	}
	if end.told.isError {
		return fmt.Errorf("after the attacks, the approved call did not run: %s", end.told.text)
	}
	p.say("\nThe call ran; the agent is told: %s\n", indent(end.told.text))
	if err := k.all(ctx, k.after()); err != nil {
		return err
	}
	if k.succeeded > 0 {
		return fmt.Errorf("%d of %d attacks were not refused", k.succeeded, k.played)
	}
	p.say("\nAll %d attacks were refused. cancel_order ran once.", k.played)
	return p.showLedger(ctx, l.Approval)
}

// attacker holds what the attacks need.
type attacker struct {
	p            Parts
	l            Link
	agent, other *agent
	genuine      signed // the approval that was taken

	played, succeeded int
}

// signed is a callback's headers and body.
type signed struct {
	h    http.Header
	body []byte
}

// attack is one attempt. It returns how it was refused; an empty answer means
// that it was not. An error means that it could not be tried.
type attack struct {
	name string
	try  func(ctx context.Context) (refusal string, err error)
}

func (k *attacker) all(ctx context.Context, list []attack) error {
	for _, at := range list {
		refusal, err := at.try(ctx)
		if err != nil {
			return fmt.Errorf("%s could not be tried: %w", at.name, err)
		}
		k.played++
		if refusal == "" {
			k.succeeded++
			k.p.say("NOT refused: %s", at.name)
			continue
		}
		k.p.say("refused: %s (%s)", at.name, refusal)
	}
	return nil
}

// callback sends a decision that is bent in one way.
func (k *attacker) callback(ctx context.Context, secret string, at time.Time, body []byte) (reply, error) {
	h, err := sign(secret, "msg_"+random(base64.RawURLEncoding.EncodeToString), at, body)
	if err != nil {
		return reply{}, err
	}
	return post(ctx, k.p.callbackURL(), h, body)
}

// form answers the page without having drawn it.
func (k *attacker) form(ctx context.Context, h http.Header) (reply, error) {
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	v := url.Values{"decision": {Approve}, "confirm": {"read"}, "nonce": {"guessed"}}
	return post(ctx, k.l.URL, h, []byte(v.Encode()))
}

// opensLink follows the link as mail filters do. That this decided nothing shows
// when the person's own answer is taken as the first one.
func (k *attacker) opensLink(ctx context.Context) (string, error) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodGet} {
		r, err := request(ctx, method, k.l.URL, http.Header{}, nil)
		if err != nil {
			return "", err
		}
		if r.status != http.StatusOK {
			return "", fmt.Errorf("the page answers HTTP %d", r.status)
		}
	}
	n, err := k.p.ran("cancel_order")
	if err != nil || n != 0 {
		return "", err
	}
	return "nothing is decided", nil
}

// rawMeta is what a request of protocol 2026-07-28 carries.
const rawMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"attacker","version":"1"}}`

func rawCall(name string) string { return rawCallWith(`"name":"` + name + `"`) }

func rawCallWith(names string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + names + `,"arguments":{"order_id":"4418"},` + rawMeta + `}}`
}

// raw sends bytes that no client library would.
func (k *attacker) raw(ctx context.Context, token string, h http.Header, name, body string) (reply, error) {
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("Mcp-Protocol-Version", "2026-07-28")
	h.Set("Mcp-Method", "tools/call")
	h.Set("Mcp-Name", name)
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return post(ctx, k.p.MCPURL, h, []byte(body))
}

// smuggle sends one call under two names, with each of them in the header. The
// same request with one name has to work, or the refusal would prove nothing.
func (k *attacker) smuggle(ctx context.Context, names string) (string, error) {
	control, err := k.raw(ctx, k.p.Token, nil, "lookup_order", rawCall("lookup_order"))
	if err != nil {
		return "", err
	}
	if control.status != http.StatusOK || rpcError(control.body) != 0 {
		return "", fmt.Errorf("the same request with one name is not answered: HTTP %d: %s", control.status, control.body)
	}
	var code int64
	for _, name := range []string{"lookup_order", "cancel_order"} {
		r, err := k.raw(ctx, k.p.Token, nil, name, rawCallWith(names))
		if err != nil {
			return "", err
		}
		if code = rpcError(r.body); code == 0 {
			return "", nil
		}
	}
	return fmt.Sprintf("error %d", code), nil
}

// rpcError is the code of a JSON-RPC error; 0 when the body is none.
func rpcError(body string) int64 {
	var m struct {
		Error *struct {
			Code int64 `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &m) != nil || m.Error == nil {
		return 0
	}
	return m.Error.Code
}

// approve is the person's own answer, with a double click: two messages at the
// same moment. One of them must be taken as the first answer, which also shows
// that none of the attacks before it decided anything, and only one.
func (k *attacker) approve(ctx context.Context) error {
	var clicks [2]signed
	for i := range clicks {
		body := decide(k.l, Approve, "you", "")
		h, err := sign(k.p.CallbackSecret, "msg_"+random(base64.RawURLEncoding.EncodeToString), time.Now(), body)
		if err != nil {
			return err
		}
		clicks[i] = signed{h, body}
	}
	var replies [2]reply
	var errs [2]error
	var wg sync.WaitGroup
	for i, c := range clicks {
		wg.Go(func() { replies[i], errs[i] = post(ctx, k.p.callbackURL(), c.h, c.body) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("sending the person's answer: %w", err)
	}
	taken := 0
	for i, r := range replies {
		if r.status == http.StatusAccepted {
			k.genuine = clicks[i]
			taken++
		}
	}
	if taken == 0 {
		return fmt.Errorf("the person's own answer was not the first to be taken: HTTP %d: %s", replies[0].status, replies[0].body)
	}
	k.p.say("\nA person approves, with a double click.")
	k.played++
	if taken > 1 {
		k.succeeded++
		k.p.say("NOT refused: the second click")
		return nil
	}
	k.p.say("refused: the second click (it is told that the answer is there already)")
	return nil
}

// ranOnce is a refusal if the desk has counted one run.
func (k *attacker) ranOnce(how string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	n, err := k.p.ran("cancel_order")
	if err != nil || n != 1 {
		return "", err
	}
	return how, nil
}

// storm sends approvals side by side, each a message of its own.
func (k *attacker) storm(ctx context.Context, n int) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { _, errs[i] = k.p.click(ctx, k.l, Approve, "you", "") })
	}
	wg.Wait()
	return errors.Join(errs...)
}
