package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// What is handed out again is byte for byte what was handed out first.
func TestKeptBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		body := "{ \"content\" : [ ],\n\t\"<&>\":9007199254740993, \"e\":\"\\u00e9\" }"
		for name, k := range map[string]approvals.Kept{
			"result": {Result: json.RawMessage(body), At: time.Now()},
			"error":  {Error: json.RawMessage(body), At: time.Now()},
		} {
			r := request(`{"for":"` + name + `"}`)
			p.approved(t, r)
			g := p.claim(t, r, "nonce-"+name)
			if _, err := p.Finish(t.Context(), g, approvals.Outcome{State: approvals.Succeeded, Kept: &k}); err != nil {
				t.Fatal(err)
			}
			got := p.load(t, g.ID).Result
			if got == nil || string(got.Result) != string(k.Result) || string(got.Error) != string(k.Error) || !got.At.Equal(k.At) {
				t.Errorf("%s: kept %s, got %+v", name, body, got)
			}
		}
	})
}
