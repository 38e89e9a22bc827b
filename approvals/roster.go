package approvals

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Person is one human with all their names.
type Person struct {
	ID      string
	Actors  []string          // actor ids of this person
	Slack   string            // Slack user id
	Tickets map[string]string // name of a tickets entry → the person's id there
}

// Roster is the people and groups of the configuration. It is immutable.
type Roster struct {
	people  map[string]Person
	groups  map[string][]string // without "group:"; members are people or "slack-group:S…"
	byActor map[string]string
	bySlack map[string]string
}

// NewRoster refuses a name that two people share, since a vote must belong to
// exactly one person, and a group that lists somebody unknown.
func NewRoster(people []Person, groups map[string][]string) (*Roster, error) {
	r := &Roster{
		people: map[string]Person{}, groups: map[string][]string{},
		byActor: map[string]string{}, bySlack: map[string]string{},
	}
	for _, p := range people {
		if err := r.add(p); err != nil {
			return nil, err
		}
	}
	for name, members := range groups {
		if !plainName(name) {
			return nil, fmt.Errorf("%q is not a group's name", name)
		}
		for _, m := range members {
			if _, ok := r.people[m]; !ok && !strings.HasPrefix(m, "slack-group:") {
				return nil, fmt.Errorf("group %s lists %s, who is not under people", name, m)
			}
		}
		r.groups[name] = slices.Clone(members)
	}
	return r, nil
}

func (r *Roster) add(p Person) error {
	if !plainName(p.ID) {
		return fmt.Errorf("%q is not a person's id", p.ID)
	}
	if _, dup := r.people[p.ID]; dup {
		return fmt.Errorf("person %s is listed twice", p.ID)
	}
	r.people[p.ID] = p
	for _, a := range p.Actors {
		if a == "" {
			return fmt.Errorf("person %s has an actor without a name", p.ID)
		}
		if other, dup := r.byActor[a]; dup {
			return fmt.Errorf("actor %s belongs to both %s and %s", a, other, p.ID)
		}
		r.byActor[a] = p.ID
	}
	if p.Slack != "" {
		if other, dup := r.bySlack[p.Slack]; dup {
			return fmt.Errorf("the Slack user %s belongs to both %s and %s", p.Slack, other, p.ID)
		}
		r.bySlack[p.Slack] = p.ID
	}
	return nil
}

// plainName refuses what approver lists would read as something else: a colon
// sets "group:ops" and "slack-group:S0" apart from people.
func plainName(s string) bool { return s != "" && !strings.Contains(s, ":") }

// Person finds a person by id.
func (r *Roster) Person(id string) (Person, bool) {
	p, ok := r.people[id]
	return p, ok
}

// People lists all people by id.
func (r *Roster) People() []Person {
	out := make([]Person, 0, len(r.people))
	for _, id := range slices.Sorted(maps.Keys(r.people)) {
		out = append(out, r.people[id])
	}
	return out
}

// ByActor finds the person behind an actor; "" when there is none.
func (r *Roster) ByActor(actor string) string { return r.byActor[actor] }

// BySlack finds the person with a Slack user id; "" when there is none.
func (r *Roster) BySlack(user string) string { return r.bySlack[user] }

// ByTicket finds the one person whose id in a ticketing system is id; "" when
// nobody or more than one has it.
func (r *Roster) ByTicket(source, id string) string {
	found := ""
	for _, p := range r.people {
		if id != "" && p.Tickets[source] == id {
			if found != "" {
				return ""
			}
			found = p.ID
		}
	}
	return found
}

// Groups lists the configured groups that name the person directly, as
// "group:NAME".
func (r *Roster) Groups(person string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.groups)) {
		if slices.Contains(r.groups[name], person) {
			out = append(out, "group:"+name)
		}
	}
	return out
}

// Members lists what a group was configured with; false when there is no such
// group. The name comes without "group:".
func (r *Roster) Members(group string) ([]string, bool) {
	m, ok := r.groups[group]
	return slices.Clone(m), ok
}

// Through lists the groups that contain any of the given Slack groups, as
// "group:NAME": a person seen in one of them is in these too.
func (r *Roster) Through(slackGroups []string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.groups)) {
		if slices.ContainsFunc(r.groups[name], func(m string) bool { return slices.Contains(slackGroups, m) }) {
			out = append(out, "group:"+name)
		}
	}
	return out
}

// SlackGroups lists the Slack user groups that matter to an approver list,
// directly or through a configured group, as "slack-group:S…".
func (r *Roster) SlackGroups(approvers []string) []string {
	var out []string
	add := func(s string) {
		if strings.HasPrefix(s, "slack-group:") && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, a := range approvers {
		add(a)
		if name, ok := strings.CutPrefix(a, "group:"); ok {
			for _, m := range r.groups[name] {
				add(m)
			}
		}
	}
	return out
}
