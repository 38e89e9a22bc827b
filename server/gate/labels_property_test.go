package gate

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/policy"
	"github.com/countersign-mcp/countersign/server/provenance"
)

// labelLists draws labels for some of the pointers.
func labelLists(pointers []string, labels ...string) *rapid.Generator[map[string][]string] {
	lists := rapid.SliceOfNDistinct(rapid.SampledFrom(labels), 1, len(labels), rapid.ID[string])
	return rapid.MapOfN(rapid.SampledFrom(pointers), lists, 0, len(pointers))
}

// Whatever somebody claims who isn't trusted, and whatever the session carries:
// every value of the call is still unknown to the rules, and none is the user's or
// the operator's.
func TestNoClaimMakesAValueKnown(t *testing.T) {
	set, err := policy.Parse("p.yaml", []byte(`version: 2
tools: {desk/x: read}
rules:
  - id: lifted
    effect: deny
    when: '["/a", "/a/0", "/a/1", "/a/1/b", "/c", "/c/d~1e"].exists(p, !("unknown" in labels(p)) || labels(p).exists(l, l in ["user", "system"]))'
    reason: x
`))
	if err != nil {
		t.Fatal(err)
	}
	args := json.RawMessage(`{"a":[1,{"b":2}],"c":{"d/e":null}}`)
	pointers := []string{"/a", "/a/0", "/a/1", "/a/1/b", "/c", "/c/d~1e"}
	rapid.Check(t, func(t *rapid.T) {
		body, err := json.Marshal(map[string]any{"v": 1, "labels": labelLists(pointers, provenance.All()...).Draw(t, "claim")})
		if err != nil {
			t.Fatal(err)
		}
		claim, err := provenance.ParseClaim(body, args)
		if err != nil {
			t.Fatal(err)
		}
		session := labelLists([]string{""}, "session:user", "session:system", "session:retrieved").Draw(t, "session")
		f := policy.Facts{Call: action.Call{Server: "desk", Tool: "x", Args: args}, Labels: provenance.Union(claim.As(false).Labels, session)}
		if v := set.Judge(f); v.Effect != policy.Allow {
			t.Fatalf("%s: %v", body, v.Reasons)
		}
	})
}

// The same call with the same labels is judged alike each time, to the byte, in
// every process that has the policy.
func TestSameFactsSameVerdict(t *testing.T) {
	text, err := os.ReadFile("../../deploy/examples/policy-five-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	parse := func() *policy.Set {
		set, err := policy.Parse("p.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	here, there := parse(), parse()
	said := func(set *policy.Set, f policy.Facts) string {
		v := set.Judge(f)
		return fmt.Sprintf("%+v %s", v, v.Policy.Hex())
	}
	calls := map[string]string{
		"vault/login_as": `{"credential":"root"}`, "db/query": `{"sql":"drop table x"}`,
		"bank/transfer": `{"account":"DE1234","amount":5,"currency":"EUR"}`, "mail/send_email": `{"to":"bo@evil.test"}`,
	}
	pointers := []string{"", "/credential", "/sql", "/account", "/to"}
	labels := append(provenance.All(), "session:retrieved", "session:model")
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"vault/login_as", "db/query", "bank/transfer", "mail/send_email"}).Draw(t, "tool")
		set := labelLists(pointers, labels...).Draw(t, "labels")
		other := map[string][]string{} // the same, in another order and doubled
		for p, ls := range set {
			for i := range ls {
				other[p] = append(other[p], ls[len(ls)-1-i], ls[0])
			}
		}
		f := policy.Facts{Call: on(ana, "s", name, calls[name], "").Call, Labels: set}
		f.Call.Server, f.Call.Tool = on(ana, "s", name, "{}", "").Front, on(ana, "s", name, "{}", "").Name
		first := said(here, f)
		again := said(here, f)
		f.Labels = other
		if third := said(there, f); again != first || third != first {
			t.Fatalf("%s\n%s\n%s", first, again, third)
		}
	})
}
