<?php
/**
 * Asks MariaDB: one connection, ?queries=N single rows by key (10), then one aggregate over the whole table.
 */

$queries = max(0, min(10000, (int) ($_GET['queries'] ?? 10)));
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$database = connect_database();
$basket = load_basket($database, $queries);
$stock = summarise_stock($database);
header('Content-Type: application/json');
echo json_encode(['page' => 'db', 'queries' => $queries, 'total_cents' => array_sum($basket), 'stock' => $stock]), "\n";

function connect_database(): mysqli
{
    return new mysqli('localhost', 'lab', getenv('LAB_DATABASE_PASSWORD'), 'lab', 0, getenv('LAB_DATABASE_SOCKET'));
}

/** @return int[] prices in cents */
function load_basket(mysqli $database, int $count): array
{
    $statement = $database->prepare('SELECT price_cents FROM items WHERE id = ?');
    $prices = [];
    for ($i = 0; $i < $count; $i++) {
        $id = 1 + $i * 37 % 1000;
        $statement->bind_param('i', $id);
        $statement->execute();
        $prices[] = (int) $statement->get_result()->fetch_column();
    }
    return $prices;
}

function summarise_stock(mysqli $database): array
{
    return $database->query('SELECT stock DIV 10 AS shelf, COUNT(*) AS items, SUM(price_cents * stock) AS value
        FROM items GROUP BY shelf ORDER BY shelf')->fetch_all(MYSQLI_ASSOC);
}
