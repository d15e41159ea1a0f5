<?php
/**
 * Fills WordPress with a catalogue: posts, categories in two levels, tags, custom fields, comments. Run by `stack seed POSTS`.
 *
 * The same number gives the same contents on every machine: each post draws from a generator seeded with its own number, so a
 * site of 300 posts is the beginning of one of 600, and a second run only adds what is missing.
 */

const CATEGORIES = 40;
const TOP_CATEGORIES = 8;
const TAGS_PER_WORD = 10;
const POSTS_PER_TRANSACTION = 100;
const WORDS = [
    'pump', 'valve', 'gear', 'motor', 'flange', 'bearing', 'seal', 'shaft', 'rotor', 'stator', 'coupling', 'hose',
    'gasket', 'sensor', 'relay', 'switch', 'panel', 'cable', 'bracket', 'housing', 'filter', 'nozzle', 'piston', 'crank',
];

$started = microtime(true);
$wanted = (int) ($argv[1] ?? 300);

$_SERVER['HTTP_HOST'] = '127.0.0.1:' . getenv('LAB_HTTP_PORT');
$_SERVER['SERVER_PROTOCOL'] = 'HTTP/1.1';
$_SERVER['REQUEST_METHOD'] = 'GET';
define('WP_INSTALLING', true);
define('WP_POST_REVISIONS', false);
require getcwd() . '/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';

install_site();
$have = (int) get_option('lab_seeded_posts', 0);

// The work per post that nobody will look at: sanitising our own text, pings, counting terms and comments each time.
kses_remove_filters();
remove_all_actions('publish_post');
remove_all_actions('do_pings');
wp_defer_term_counting(true);
wp_defer_comment_counting(true);
wp_suspend_cache_addition(true);

$categories = make_categories();
$tags = make_tags();
$wpdb->query('SET autocommit = 0');
for ($number = $have; $number < $wanted; $number++) {
    make_post($number, $categories, $tags);
    if ($number % POSTS_PER_TRANSACTION === POSTS_PER_TRANSACTION - 1) {
        // The count goes into the same transaction as the posts: an interrupted run continues without doubling any.
        update_option('lab_seeded_posts', $number + 1, true);
        $wpdb->query('COMMIT');
    }
}
wp_defer_term_counting(false);
wp_defer_comment_counting(false);
update_option('lab_seeded_posts', $wanted, true);
$wpdb->query('COMMIT');
$elapsed_s = microtime(true) - $started;
printf("WordPress holds %d posts, %d categories, %d tags (%.1f s)\n", $wanted, CATEGORIES, count($tags), $elapsed_s);

/** Makes tables, administrator and settings, unless that was done before. */
function install_site(): void
{
    if (!is_blog_installed()) {
        wp_install('Lab catalogue', 'admin', 'admin@example.invalid', true, '', (string) getenv('LAB_ADMIN_PASSWORD'));
        // WordPress greets with a post, two pages and a comment that carry the date of today.
        foreach (get_posts(['post_type' => ['post', 'page'], 'post_status' => 'any', 'fields' => 'ids']) as $id) {
            wp_delete_post($id, true);
        }
    }
    switch_theme('twentytwentyone');
    update_option('posts_per_page', 20);
    update_option('permalink_structure', '');
}

/** @return int[] ids; the first eight are top categories, the others their children */
function make_categories(): array
{
    $ids = [];
    for ($i = 0; $i < CATEGORIES; $i++) {
        $ids[] = term_id("Category $i", 'category', ['parent' => $i < TOP_CATEGORIES ? 0 : $ids[$i % TOP_CATEGORIES]]);
    }
    return $ids;
}

/** @return int[] ids */
function make_tags(): array
{
    $ids = [];
    foreach (WORDS as $word) {
        for ($i = 0; $i < TAGS_PER_WORD; $i++) {
            $ids[] = term_id("$word-$i", 'post_tag', []);
        }
    }
    return $ids;
}

/** The id of a term, made if it does not exist. */
function term_id(string $name, string $taxonomy, array $options): int
{
    $term = wp_insert_term($name, $taxonomy, $options);
    return is_wp_error($term) ? (int) $term->get_error_data('term_exists') : (int) $term['term_id'];
}

/**
 * @param int[] $categories
 * @param int[] $tags
 */
function make_post(int $number, array $categories, array $tags): void
{
    mt_srand($number + 1);
    // One post per hour from a fixed day on: the time of seeding must not show in the pages.
    $date = gmdate('Y-m-d H:i:s', 1735732800 + $number * 3600);
    $id = wp_insert_post([
        'post_title' => "SKU $number " . WORDS[mt_rand(0, count(WORDS) - 1)],
        'post_content' => make_text(8, 70),
        'post_status' => 'publish',
        'post_author' => 1,
        'post_date' => $date,
        'post_date_gmt' => $date,
        'post_category' => pick($categories, 2),
        'tags_input' => pick($tags, 5),
        'meta_input' => make_fields(6),
    ], true);
    if (is_wp_error($id)) {
        fwrite(STDERR, "error: post $number: " . $id->get_error_message() . "\n");
        exit(1);
    }
    for ($i = $number % 3; $i > 0; $i--) {
        wp_insert_comment([
            'comment_post_ID' => $id,
            'comment_author' => 'Visitor ' . mt_rand(1, 50),
            'comment_author_email' => 'visitor@example.invalid',
            'comment_content' => make_words(30),
            'comment_date' => $date,
            'comment_date_gmt' => $date,
            'comment_approved' => 1,
        ]);
    }
}

/** @param int[] $ids @return int[] */
function pick(array $ids, int $count): array
{
    $picked = [];
    for ($i = 0; $i < $count; $i++) {
        $picked[] = $ids[mt_rand(0, count($ids) - 1)];
    }
    return $picked;
}

/** @return array<string, int> */
function make_fields(int $count): array
{
    $fields = [];
    for ($i = 0; $i < $count; $i++) {
        $fields["spec_$i"] = mt_rand(1, 9999);
    }
    return $fields;
}

function make_text(int $paragraphs, int $words): string
{
    $text = '';
    for ($i = 0; $i < $paragraphs; $i++) {
        $text .= '<!-- wp:paragraph --><p>' . make_words($words) . "</p><!-- /wp:paragraph -->\n";
    }
    return $text;
}

function make_words(int $count): string
{
    $words = [];
    for ($i = 0; $i < $count; $i++) {
        $words[] = WORDS[mt_rand(0, count(WORDS) - 1)];
    }
    return implode(' ', $words);
}
