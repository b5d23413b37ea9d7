// SPDX-License-Identifier: Apache-2.0

package metrics

var (
	notifications = counter("moult_notifications_total",
		"Requests to webhooks with a notification, by the webhook's name, the event, and the outcome: sent, failed (and sent again later), or refused.",
		"webhook", "event", "outcome")
	notificationsInvalid = gauge("moult_notifications_invalid", "1 while the Secret moult-notifications has an error, so that no notification is sent.")
)

// CountNotification counts one request to a webhook.
func CountNotification(webhook, event, outcome string) {
	notifications.WithLabelValues(webhook, event, outcome).Inc()
}

// SetNotificationsInvalid sets whether the configuration of notifications has an error.
func SetNotificationsInvalid(is bool) { notificationsInvalid.WithLabelValues().Set(oneIf(is)) }
