package webhook

import (
	"net/http"
	"net/url"
	"regexp"

	"github.com/labstack/echo/v4"
)

// The action ids of our buttons. A new meaning gets a new version; retired ones
// are answered with a sentence.
const (
	ActionApprove = "countersign:approve:v1"
	ActionDeny    = "countersign:deny:v1"
)

// click is a verified block_actions payload with the members that matter.
type click struct {
	app, team, enterprise string
	user, userTeam        string
	channel, messageTS    string
	action, value, at     string
	responseURL           string
}

var (
	slackID = regexp.MustCompile(`^[A-Z0-9]{1,32}$`)
	slackTS = regexp.MustCompile(`^[0-9]{1,12}\.[0-9]{1,9}$`)
)

// slackInteraction verifies a request of Slack's and takes the click in it.
// Slack shows its user an error for every status but 200, and ignores a body.
func (s *Server) slackInteraction(c echo.Context) error {
	if err := noQuery(c.Request()); err != nil {
		return err
	}
	body, err := readRaw(c, SlackBodyLimit)
	if err != nil {
		return err
	}
	if err := s.verify.Load().slack.verify(c.Request().Header, body, s.now()); err != nil {
		s.cfg.Observe("slack", "bad_signature")
		return problem(http.StatusUnauthorized, "bad-signature", "")
	}
	if !mediaType(c.Request(), "application/x-www-form-urlencoded") {
		return problem(http.StatusUnsupportedMediaType, "media-type", "")
	}
	k, ok := parseClick(body)
	if !ok {
		s.cfg.Observe("slack", "malformed")
		return problem(http.StatusUnprocessableEntity, "malformed", "the payload is not one click on one of our buttons")
	}
	out := s.takeClick(c.Request().Context(), k)
	s.cfg.Observe("slack", out.name)
	if out.say != "" {
		s.replies.send(k.responseURL, out.say)
	}
	if out.status != http.StatusOK {
		return problem(out.status, out.name, "")
	}
	return c.NoContent(http.StatusOK)
}

// parseClick reads the form and its one payload. Everything else than one
// complete button click is not an answer.
func parseClick(body []byte) (click, bool) {
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form) != 1 || len(form["payload"]) != 1 {
		return click{}, false
	}
	m, err := strictObject([]byte(form["payload"][0]))
	if err != nil {
		return click{}, false
	}
	if t, ok := m.must("type"); !ok || t != "block_actions" {
		return click{}, false
	}
	var k click
	good := k.readOrigin(m) && k.readMessage(m) && k.readAction(m)
	return k, good
}

// readOrigin reads who clicked, in which app and workspace. team is null for an
// app that is installed in a whole organisation.
func (k *click) readOrigin(m members) bool {
	user, ok := m.object("user")
	if !ok {
		return false
	}
	var good [3]bool
	k.user, good[0] = user.must("id")
	k.userTeam, good[1] = user.text("team_id")
	k.app, good[2] = m.must("api_app_id")
	if good != [3]bool{true, true, true} || !slackID.MatchString(k.user) {
		return false
	}
	for name, to := range map[string]*string{"team": &k.team, "enterprise": &k.enterprise} {
		if m.absent(name) {
			continue
		}
		o, ok := m.object(name)
		if !ok {
			return false
		}
		if *to, ok = o.must("id"); !ok {
			return false
		}
	}
	k.responseURL, ok = m.text("response_url")
	return ok
}

// readMessage reads where the button is: in a message, not in an attachment (a
// forwarded card) or a modal.
func (k *click) readMessage(m members) bool {
	container, ok := m.object("container")
	channel, ok2 := m.object("channel")
	if !ok || !ok2 {
		return false
	}
	kind, _ := container.must("type")
	id, _ := channel.must("id")
	k.channel, _ = container.must("channel_id")
	k.messageTS, _ = container.must("message_ts")
	return kind == "message" && id == k.channel && slackID.MatchString(id) && slackTS.MatchString(k.messageTS)
}

func (k *click) readAction(m members) bool {
	actions, ok := elements(m["actions"])
	if !ok || len(actions) != 1 {
		return false
	}
	a, ok := object(actions[0])
	if !ok {
		return false
	}
	if kind, ok := a.must("type"); !ok || kind != "button" {
		return false
	}
	if _, ok := a.must("block_id"); !ok {
		return false
	}
	var good [2]bool
	k.action, good[0] = a.must("action_id")
	k.value, good[1] = a.text("value") // a button that only opens a URL has none
	k.at, _ = a.must("action_ts")
	return good == [2]bool{true, true} && slackTS.MatchString(k.at)
}
