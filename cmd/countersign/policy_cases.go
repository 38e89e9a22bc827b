package main

import "fmt"

type policyTestCmd struct {
	Files []string `arg:"" name:"FILE" help:"Policy files." type:"path"`
}

// Help lists the exit codes.
func (policyTestCmd) Help() string {
	return "Limits, people and channels are not asked; a case's roles and labels are taken as given. " +
		"Exit code: 0 all cases come out as they say, 1 one does not or a file does not load, 4 usage."
}

// Run prints each case that does not come out as it says, and counts.
func (c policyTestCmd) Run(term terminal) error {
	failed := false
	for _, name := range c.Files {
		ok, err := testPolicy(term, name)
		if err != nil {
			fmt.Fprintln(term.err, "countersign:", err)
		}
		failed = failed || !ok || err != nil
	}
	if failed {
		return exitError(exitFailed)
	}
	return nil
}

func testPolicy(term terminal, name string) (ok bool, err error) {
	set, err := readPolicy(name)
	if err != nil {
		return false, err
	}
	notes(term, name+": ", set.Warnings())
	right := 0
	for _, r := range set.Test() {
		if len(r.Problems) == 0 {
			right++
			continue
		}
		fmt.Fprintf(term.out, "%s:%d: %s\n", name, r.Line, r.Name)
		for _, p := range r.Problems {
			fmt.Fprintf(term.out, "    %s\n", p)
		}
	}
	if set.Cases() == 0 {
		_, err = fmt.Fprintf(term.out, "%s loads, and has no cases.\n", name)
		return true, err
	}
	_, err = fmt.Fprintf(term.out, "%s: %d of %d cases come out as they say.\n", name, right, set.Cases())
	return right == set.Cases(), err
}
