package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/webhook"
)

// tokenVariable holds the operator's bearer token: a flag would be seen in the
// process list.
const tokenVariable = "COUNTERSIGN_ADMIN_TOKEN"

type approvalsCmd struct {
	Admin string `help:"The gate's admin listener; http://127.0.0.1:8091 unless given. An operator's token is read from $COUNTERSIGN_ADMIN_TOKEN." default:"http://127.0.0.1:8091" placeholder:"URL"`
	JSON  bool   `help:"Print JSON."`

	List    approvalsList    `cmd:"" help:"List approvals: what is waiting, or all."`
	Show    approvalsShow    `cmd:"" help:"Show one approval with everything that would run."`
	Approve approvalsApprove `cmd:"" help:"Approve a call. It is shown first; you are asked unless --yes."`
	Deny    approvalsDeny    `cmd:"" help:"Deny a call."`
	Revoke  approvalsRevoke  `cmd:"" help:"Take an approval back before the call runs."`
	Resolve approvalsResolve `cmd:"" help:"Say what became of a call whose outcome is unknown."`
}

func (c *approvalsCmd) client() (*webhook.Client, error) {
	return webhook.NewClient(c.Admin, os.Getenv(tokenVariable))
}

// tell prints one approval after a change.
func (c *approvalsCmd) tell(term terminal, a webhook.Approval) error {
	if c.JSON {
		return json.NewEncoder(term.out).Encode(a)
	}
	_, err := fmt.Fprintf(term.out, "%s is %s.\n", a.ID, a.State)
	return err
}

type approvalsList struct {
	All bool `help:"Also those that are over."`
	Max int  `help:"At most this many." default:"100"`
}

// Run lists the newest first.
func (l approvalsList) Run(ctx context.Context, term terminal, c *approvalsCmd) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	states := []approvals.State{approvals.Pending, approvals.Approved, approvals.Executing, approvals.Unknown}
	if l.All {
		states = nil
	}
	list, err := client.List(ctx, states, l.Max)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(term.out).Encode(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(term.out, "Nothing is waiting.")
		return err
	}
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tWHAT\tWHO\tUNTIL")
	for _, a := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.ID, a.State, what(a), a.Actor, stamp(a))
	}
	return w.Flush()
}

type approvalsShow struct {
	ID string `arg:"" help:"The approval."`
}

// Run prints the whole view.
func (s approvalsShow) Run(ctx context.Context, term terminal, c *approvalsCmd) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	a, err := client.Show(ctx, s.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(term.out).Encode(a)
	}
	return show(term, a)
}

type approvalsApprove struct {
	ID  string `arg:"" help:"The approval."`
	Yes bool   `help:"Do not ask, unless not all of the call can be shown."`
}

// Run shows the call, asks, and votes for the digest that was shown.
func (v approvalsApprove) Run(ctx context.Context, term terminal, c *approvalsCmd) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	a, err := client.Show(ctx, v.ID)
	if err != nil {
		return err
	}
	if !v.Yes || !a.Complete {
		if err := show(term, a); err != nil {
			return err
		}
	}
	if ok, err := v.agrees(term, a.Complete); err != nil || !ok {
		return fmt.Errorf("nothing was approved")
	}
	a, err = client.Decide(ctx, v.ID, approvals.Approve, "", a.Digest)
	if err != nil {
		return err
	}
	return c.tell(term, a)
}

// agrees asks for the yes. What nothing shows whole is never approved unasked, and
// not by the word that is typed by habit.
func (v approvalsApprove) agrees(term terminal, complete bool) (bool, error) {
	switch {
	case !complete:
		return ask(term, "This is NOT the whole call: what is missing stands above. Approve it unseen? Type unseen: ", "unseen")
	case v.Yes:
		return true, nil
	}
	return ask(term, "Approve this call? Type yes: ", "yes")
}

type approvalsDeny struct {
	ID     string `arg:"" help:"The approval."`
	Reason string `help:"The agent gets to read it."`
}

// Run votes no.
func (v approvalsDeny) Run(ctx context.Context, term terminal, c *approvalsCmd) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	a, err := client.Decide(ctx, v.ID, approvals.Deny, v.Reason, "")
	if err != nil {
		return err
	}
	return c.tell(term, a)
}

type approvalsRevoke struct {
	ID     string `arg:"" help:"The approval."`
	Reason string `help:"The agent gets to read it."`
}

// Run takes the approval back.
func (v approvalsRevoke) Run(ctx context.Context, term terminal, c *approvalsCmd) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	a, err := client.Revoke(ctx, v.ID, v.Reason)
	if err != nil {
		return err
	}
	return c.tell(term, a)
}

type approvalsResolve struct {
	ID     string `arg:"" help:"The approval."`
	Ran    bool   `help:"The call did run." xor:"outcome" required:""`
	NotRun bool   `help:"The call did not run." xor:"outcome" required:""`
	Note   string `help:"How you know." required:""`
}

// Help says what the usage line can't.
func (approvalsResolve) Help() string { return "Give one of --ran and --not-run." }

// Run settles an unknown outcome.
func (v approvalsResolve) Run(ctx context.Context, term terminal, c *approvalsCmd) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	a, err := client.Resolve(ctx, v.ID, v.Ran, v.Note)
	if err != nil {
		return err
	}
	return c.tell(term, a)
}

// ask tells whether the answer is this word.
func ask(term terminal, question, word string) (bool, error) {
	if _, err := fmt.Fprint(term.out, question); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(term.in).ReadString('\n')
	return strings.TrimSpace(line) == word, err
}
