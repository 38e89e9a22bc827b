package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// tenRules are ten rules with conditions, all judged for each call.
const tenRules = `
version: 2
tools: {pay/transfer: destructive}
routes: {default: {channels: [slack:C0OPS], approvers: [group:ops]}}
rules:
  - {id: r1, effect: deny, reason: x, when: 'tier == "destructive" && !("operator" in actor.roles)'}
  - {id: r2, effect: deny, reason: x, when: 'labels("/account").exists(l, l == "retrieved")'}
  - {id: r3, effect: review, reason: x, when: 'args.amount > 1000'}
  - {id: r4, effect: review, reason: x, when: 'args.currency != "EUR"'}
  - {id: r5, effect: deny, reason: x, when: '!args.account.matches("^[A-Z0-9]{2,34}$")'}
  - {id: r6, effect: review, reason: x, when: '!args.to.endsWith("@acme.test")'}
  - {id: r7, effect: deny, reason: x, when: 'server == "pay" && tool.startsWith("admin.")'}
  - {id: r8, effect: deny, reason: x, when: 'args.currency in ["RUB", "KPW"]'}
  - {id: r9, effect: review, reason: x, when: 'size(args.note) > 500'}
  - {id: r10, effect: deny, reason: x, when: 'actor.id == "guest" || workflow == "trial"'}
`

func tenRulesCall(args string) Facts {
	return Facts{
		Call: action.Call{
			Server: "pay", Tool: "transfer", Args: json.RawMessage(args),
			Actor: action.Actor{ID: "ana@acme.test", Roles: []string{"operator"}}, Workflow: "w",
		},
		Labels: map[string][]string{"/account": {"user"}},
	}
}

const tenRulesArgs = `{"amount": 250.5, "currency": "EUR", "account": "DE89370400440532013000", "to": "bo@acme.test", "note": "rent"`

func BenchmarkTenRules(b *testing.B) {
	s, err := Parse("p", []byte(tenRules))
	if err != nil {
		b.Fatal(err)
	}
	for name, args := range map[string]string{
		"small": tenRulesArgs + "}",
		// With an argument that no rule asks for.
		"large": tenRulesArgs + `, "blob": "` + strings.Repeat("x", smallCall) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			f := tenRulesCall(args)
			b.ReportAllocs()
			for b.Loop() {
				if v := s.Judge(f); v.Effect != Review || len(v.Reasons) != 1 {
					b.Fatalf("%+v", v)
				}
			}
		})
	}
}

func BenchmarkParseSample(b *testing.B) {
	for b.Loop() {
		file(b, "testdata/sample.v2.yaml")
	}
}
