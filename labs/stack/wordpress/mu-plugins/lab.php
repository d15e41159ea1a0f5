<?php
/**
 * Plugin Name: Slipstream lab
 * Description: What WordPress needs to run on a port of the loopback interface.
 */

// WordPress compares the visitor's address with its idea of the canonical one and leaves out the port, so that a page behind
// a port other than 80 redirects to itself for ever.
remove_action('template_redirect', 'redirect_canonical');

// The lab sends no mail, not even the one about its own installation.
add_filter('pre_wp_mail', '__return_true');

// A page of the front end links to nothing outside: no emoji script, no discovery of hosts.
remove_action('wp_head', 'print_emoji_detection_script', 7);
remove_action('wp_head', 'wp_resource_hints', 2);
