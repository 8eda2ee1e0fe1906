<?php
// Work for PHP whose output is the same each time: its own heap, and the extensions that are there, which it opens with
// RTLD_DEEPBIND. The first argument, or ?seed=, varies it.
// SPDX-License-Identifier: MIT
$seed = (int)($argv[1] ?? $_GET['seed'] ?? 1);
mt_srand($seed);
$rows = [];
for ($i = 0; $i < 5000; $i++)
    $rows[] = ['id' => $i, 'name' => str_repeat(chr(97 + mt_rand(0, 25)), mt_rand(1, 200)), 'tags' => range(0, $i % 7)];
usort($rows, fn($a, $b) => strlen($a['name']) <=> strlen($b['name']) ?: $a['id'] <=> $b['id']);
$json = json_encode($rows);
$said = [strlen($json), md5(serialize(json_decode($json, true)))];

$said[] = hash('sha512', preg_replace_callback('/\d+/', fn($m) => $m[0] * 2, $json));
if (extension_loaded('zlib'))
    $said[] = md5(gzuncompress(gzcompress($json, 9)) . gzinflate(gzdeflate($json)));
if (extension_loaded('mbstring'))
    $said[] = md5(mb_convert_encoding(mb_strtoupper(str_repeat('äöü ', 10000), 'UTF-8'), 'UTF-16', 'UTF-8'));
if (extension_loaded('iconv'))
    $said[] = md5(iconv('UTF-8', 'ISO-8859-1', str_repeat('é', 10000)));
if (extension_loaded('xml')) {
    $document = new DOMDocument();
    $root = $document->appendChild($document->createElement('rows'));
    foreach (array_slice($rows, 0, 500) as $row)
        $root->appendChild($document->createElement('row', $row['name']))->setAttribute('id', (string)$row['id']);
    $xml = $document->saveXML();
    $found = simplexml_load_string($xml)->xpath('//row[@id > 2500]');
    $style = new DOMDocument();
    $style->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">' .
        '<xsl:template match="/"><xsl:for-each select="//row"><xsl:value-of select="@id"/>,</xsl:for-each>' .
        '</xsl:template></xsl:stylesheet>');
    $said[] = strlen($xml) . ' ' . count($found);
    if (extension_loaded('xsl')) {
        $processor = new XSLTProcessor();
        $processor->importStylesheet($style);
        $said[] = md5($processor->transformToXml($document));
    }
}
if (extension_loaded('openssl'))
    $said[] = md5(openssl_encrypt($json, 'aes-256-cbc', str_repeat('k', 32), 0, str_repeat('i', 16)));
if (extension_loaded('sodium'))
    $said[] = bin2hex(sodium_crypto_generichash($json));
if (extension_loaded('fileinfo'))
    $said[] = (new finfo(FILEINFO_MIME))->buffer($json);
if (extension_loaded('FFI') && PHP_SAPI === 'cli')
    $said[] = FFI::cdef('int atoi(const char *);', 'libc.so.6')->atoi('42');
$said[] = (new DateTimeImmutable('2024-02-29'))->modify('+1 year')->format(DATE_ATOM);
echo implode("\n", $said), "\n";
