<?php
/**
 * MediaWiki's settings of the lab. Everything that differs between two labs comes from the pool's environment.
 */

$wgSitename = 'Lab wiki';
$wgServer = 'http://apps.example';
$wgScriptPath = '';
$wgDBtype = 'mysql';
$wgDBserver = 'localhost:' . getenv('LAB_DATABASE_SOCKET');
$wgDBname = 'mediawiki';
$wgDBuser = 'lab';
$wgDBpassword = (string) getenv('LAB_DATABASE_PASSWORD');
$wgDBTableOptions = 'ENGINE=InnoDB, DEFAULT CHARSET=binary';
$wgSecretKey = hash('sha256', "wiki $wgDBpassword");
$wgUpgradeKey = substr($wgSecretKey, 0, 16);
$wgLanguageCode = 'en';
$wgLocaltimezone = 'UTC';
$wgUploadDirectory = getenv('LAB_FOLDER') . '/images';

// Messages in files that opcache holds, as on a site that was set up with care.
$wgCacheDirectory = getenv('LAB_FOLDER') . '/cache';
$wgLocalisationCacheConf['store'] = 'array';
$wgMainCacheType = CACHE_NONE;

// No request may do more than it says.
$wgJobRunRate = 0;
$wgEnableEmail = false;
$wgPingback = false;

wfLoadSkin('Vector');
$wgDefaultSkin = 'vector';
wfLoadExtension('ParserFunctions');
wfLoadExtension('Cite');
wfLoadExtension('WikiEditor');
