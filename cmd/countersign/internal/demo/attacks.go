package demo

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// refusedAs is the refusal of a plain request, if it got that status.
func refusedAs(status int) func(reply, error) (string, error) {
	return func(r reply, err error) (string, error) {
		if err != nil || r.status != status {
			return "", err
		}
		return fmt.Sprintf("HTTP %d", r.status), nil
	}
}

// before are the attacks on a call that waits.
func (k *attacker) before() []attack {
	return append(k.forgedCallbacks(), append(k.wrongPeople(), k.wayIn()...)...)
}

func (k *attacker) forgedCallbacks() []attack {
	yes := func() []byte { return decide(k.l, Approve, "you", "") }
	otherSecret := "whsec_" + random(base64.StdEncoding.EncodeToString)
	return []attack{
		{"an approval without a signature", func(ctx context.Context) (string, error) {
			return refusedAs(401)(post(ctx, k.p.callbackURL(), http.Header{"Content-Type": {"application/json"}}, yes()))
		}},
		{"an approval signed with another secret", func(ctx context.Context) (string, error) {
			return refusedAs(401)(k.callback(ctx, otherSecret, time.Now(), yes()))
		}},
		{"an approval signed ten minutes ago", func(ctx context.Context) (string, error) {
			return refusedAs(401)(k.callback(ctx, k.p.CallbackSecret, time.Now().Add(-10*time.Minute), yes()))
		}},
		{"an approval signed for ten minutes from now", func(ctx context.Context) (string, error) {
			return refusedAs(401)(k.callback(ctx, k.p.CallbackSecret, time.Now().Add(10*time.Minute), yes()))
		}},
		{"a signed denial turned into an approval on its way", func(ctx context.Context) (string, error) {
			body := decide(k.l, Deny, "you", "")
			h, err := sign(k.p.CallbackSecret, "msg_turned", time.Now(), body)
			if err != nil {
				return "", err
			}
			turned := []byte(strings.Replace(string(body), `"deny"`, `"approve"`, 1))
			return refusedAs(401)(post(ctx, k.p.callbackURL(), h, turned))
		}},
		{"an approval of another call's digest", func(ctx context.Context) (string, error) {
			l := k.l
			l.Digest = flip(l.Digest)
			return refusedAs(422)(k.callback(ctx, k.p.CallbackSecret, time.Now(), decide(l, Approve, "you", "")))
		}},
		{"an approval with two answers in one body", func(ctx context.Context) (string, error) {
			body := strings.Replace(string(yes()), `"decision":`, `"decision":"deny","decision":`, 1)
			return refusedAs(422)(k.callback(ctx, k.p.CallbackSecret, time.Now(), []byte(body)))
		}},
	}
}

// flip changes the last character of a digest.
func flip(digest string) string {
	if digest == "" {
		return "x"
	}
	last := "A"
	if strings.HasSuffix(digest, last) {
		last = "B"
	}
	return digest[:len(digest)-1] + last
}

func (k *attacker) wrongPeople() []attack {
	return []attack{
		{"the requester's own approval", func(ctx context.Context) (string, error) {
			return refusedAs(403)(k.p.click(ctx, k.l, Approve, "ana", ""))
		}},
		{"the approval of somebody who is not on the route", func(ctx context.Context) (string, error) {
			return refusedAs(403)(k.p.click(ctx, k.l, Approve, "bob", ""))
		}},
		{"the approval of somebody whom nobody knows", func(ctx context.Context) (string, error) {
			return refusedAs(403)(k.p.click(ctx, k.l, Approve, "root", ""))
		}},
		{"a form sent to the page from another site", func(ctx context.Context) (string, error) {
			return refusedAs(403)(k.form(ctx, http.Header{"Origin": {"https://evil.test"}, "Sec-Fetch-Site": {"cross-site"}}))
		}},
		{"a form without what the page gave out", func(ctx context.Context) (string, error) {
			return refusedAs(409)(k.form(ctx, http.Header{}))
		}},
		{"a link checker that opens the link", k.opensLink},
	}
}

// wayIn are attempts to reach the tool, or another's answer, past the approval.
func (k *attacker) wayIn() []attack {
	return []attack{
		{"a call without a token", func(ctx context.Context) (string, error) {
			return refusedAs(401)(k.raw(ctx, "", nil, "lookup_order", rawCall("lookup_order")))
		}},
		{"a call with a token that was made up", func(ctx context.Context) (string, error) {
			return refusedAs(401)(k.raw(ctx, "demo-guess", nil, "lookup_order", rawCall("lookup_order")))
		}},
		{"a call from a web page of another site", func(ctx context.Context) (string, error) {
			return refusedAs(403)(k.raw(ctx, k.p.Token, http.Header{"Origin": {"https://evil.test"}}, "lookup_order", rawCall("lookup_order")))
		}},
		{"a call of a tool that is not listed", func(ctx context.Context) (string, error) {
			t, err := k.agent.call(ctx, "drop_all_orders", map[string]any{})
			return refusedBy(t, err, t.code != 0)
		}},
		{"two names in one call, one harmless", func(ctx context.Context) (string, error) {
			return k.smuggle(ctx, `"name":"lookup_order","name":"cancel_order"`)
		}},
		{"a second name in capitals", func(ctx context.Context) (string, error) {
			return k.smuggle(ctx, `"name":"lookup_order","Name":"cancel_order"`)
		}},
		{"another agent that collects the call", func(ctx context.Context) (string, error) {
			t, err := k.other.call(ctx, "countersign_collect", map[string]any{"approval_id": k.l.Approval})
			return refusedBy(t, err, t.isError && !t.waiting())
		}},
	}
}

func refusedBy(t told, err error, refused bool) (string, error) {
	if err != nil || !refused {
		return "", err
	}
	if t.code != 0 {
		return fmt.Sprintf("error %d", t.code), nil
	}
	return "an error result", nil
}

// after are the attacks on a call that was approved and ran.
func (k *attacker) after() []attack {
	return []attack{
		{"the same signed approval once more", func(ctx context.Context) (string, error) {
			r, err := post(ctx, k.p.callbackURL(), k.genuine.h, k.genuine.body)
			return k.ranOnce(fmt.Sprintf("HTTP %d, and it does not run again", r.status), err)
		}},
		{"50 more approvals at once", func(ctx context.Context) (string, error) {
			return k.ranOnce("it does not run again", k.storm(ctx, 50))
		}},
		{"a denial after it ran", func(ctx context.Context) (string, error) {
			r, err := k.p.click(ctx, k.l, Deny, "you", "")
			if err != nil || r.status != http.StatusConflict && r.status != http.StatusGone {
				return "", err
			}
			return fmt.Sprintf("HTTP %d", r.status), nil
		}},
		{"the same call once more", func(ctx context.Context) (string, error) {
			_, err := k.agent.call(ctx, "cancel_order", map[string]any{"order_id": order})
			return k.ranOnce("its result is handed out again, it does not run again", err)
		}},
		{"another agent that collects the result", func(ctx context.Context) (string, error) {
			t, err := k.other.call(ctx, "countersign_collect", map[string]any{"approval_id": k.l.Approval})
			return refusedBy(t, err, t.isError)
		}},
	}
}
