<?php
/**
 * phpMyAdmin's settings of the lab: people log in by cookies.
 */

$cfg['blowfish_secret'] = substr(hash('sha256', 'phpmyadmin ' . getenv('LAB_DATABASE_PASSWORD')), 0, 32);
$cfg['Servers'][1]['auth_type'] = 'cookie';
$cfg['Servers'][1]['host'] = 'localhost';
$cfg['Servers'][1]['socket'] = getenv('LAB_DATABASE_SOCKET');
$cfg['PmaNoRelation_DisableWarning'] = true;
$cfg['VersionCheck'] = false;
$cfg['SendErrorReports'] = 'never';
