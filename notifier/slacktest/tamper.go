package slacktest

// The functions here make values for Click.Mutate: payloads that a faithful
// Slack sends in unusual set-ups, or that only a forger would.

// All applies several changes in order.
func All(changes ...func(map[string]any)) func(map[string]any) {
	return func(p map[string]any) {
		for _, c := range changes {
			c(p)
		}
	}
}

// OrgInstall is a click in an app that is installed for a whole organisation:
// team is null.
func OrgInstall(enterpriseID string) func(map[string]any) {
	return func(p map[string]any) {
		p["team"] = nil
		p["enterprise"] = map[string]any{"id": enterpriseID, "name": "org"}
		p["is_enterprise_install"] = true
	}
}

// WrongApp says that another app was clicked.
func WrongApp(id string) func(map[string]any) {
	return func(p map[string]any) { p["api_app_id"] = id }
}

// WrongTeam says that the app is installed in another workspace.
func WrongTeam(id string) func(map[string]any) {
	return func(p map[string]any) { p["team"] = map[string]any{"id": id, "domain": "elsewhere"} }
}

// WrongChannel says that the message is in another channel.
func WrongChannel(id string) func(map[string]any) {
	return func(p map[string]any) {
		p["channel"] = map[string]any{"id": id, "name": "elsewhere"}
		p["container"].(map[string]any)["channel_id"] = id
	}
}

// WrongMessage says that the button is on another message.
func WrongMessage(ts string) func(map[string]any) {
	return func(p map[string]any) {
		p["container"].(map[string]any)["message_ts"] = ts
		p["message"].(map[string]any)["ts"] = ts
	}
}

// Value replaces the button's value.
func Value(v string) func(map[string]any) {
	return func(p map[string]any) { p["actions"].([]any)[0].(map[string]any)["value"] = v }
}

// ActionID replaces the button's action_id.
func ActionID(id string) func(map[string]any) {
	return func(p map[string]any) { p["actions"].([]any)[0].(map[string]any)["action_id"] = id }
}

// UserTeam replaces the workspace that the payload says the user is of.
func UserTeam(id string) func(map[string]any) {
	return func(p map[string]any) { p["user"].(map[string]any)["team_id"] = id }
}
