// SPDX-License-Identifier: Apache-2.0

package events

import corev1 "k8s.io/api/core/v1"

// NotificationsInvalid: the Secret with the webhooks has an error.
var NotificationsInvalid = saying[*corev1.Secret](warning, "Invalid", "No notification is sent: %s")
